"""Requests to the responses endpoint."""

from typing import Any

import httpx
from scripted import WORDS
from weather_tools import CALL, TOOLS, wrapped

PATH = "/v1/responses"
TEXT = "".join(WORDS)
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]
FULL = f"<think>Which place?</think>I look.{wrapped(CALL)}"


async def respond(client: httpx.AsyncClient, input: Any, previous: str | None = None, **fields: Any) -> dict[str, Any]:
    response = await client.post(PATH, json={"input": input, "previous_response_id": previous, **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())
