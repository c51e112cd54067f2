"""Requests to Anthropic's endpoint, and the events of its streams."""

import json
from typing import Any

import httpx
from scripted import WORDS
from weather_tools import CALL, OTHER, TOOLS, wrapped

PATH = "/v1/messages"
TEXT = "".join(WORDS)
IMAGE = {"type": "base64", "media_type": "image/png", "data": "aaaa"}
THEIR_TOOLS = [
    {"name": "weather", "description": "The weather of a place", "input_schema": TOOLS[0]["function"]["parameters"]},
    {"name": "time", "input_schema": {"type": "object"}},
]
FULL = f"<think>Which place?</think>I look.{wrapped(CALL)}{wrapped(OTHER)}"


def asks(*turns: Any, **fields: Any) -> dict[str, Any]:
    """Return a body whose turns are the user's, and the assistant's between them."""
    roles = ["user", "assistant"]
    messages = [{"role": roles[number % 2], "content": content} for number, content in enumerate(turns)]
    return {"messages": messages, "max_tokens": 9, **fields}


async def events(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the data of all events, whose names are their types."""
    response = await client.post(PATH, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    found = []
    for event in response.text.split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found
