"""/v1/messages over a real daemon: the same tokens as chats, text, media, tools and prefilled answers."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from completions import ask
from daemon import Daemon
from drawing_tools import SHAPE, TOOLS, check
from media import Clip, image_part, make_image, text_part, video_part


def post(daemon: Daemon, path: str, **body: Any) -> Any:
    response = httpx.post(f"{daemon.url}{path}", json=body, timeout=300)
    assert response.status_code == 200, response.text
    return response


def source(part: dict[str, Any]) -> dict[str, str]:
    """Return the source of a medium that a chat's part has as a data URL."""
    head, _, data = part[part["type"]]["url"].partition(",")
    return {"type": "base64", "media_type": head.removeprefix("data:").removesuffix(";base64"), "data": data}


@pytest.mark.daemon("the answers of a real model, by two APIs")
def test_answers_are_those_of_chats(daemon: Daemon, clips: Callable[[int], Clip]) -> None:
    image, video, text = image_part(make_image(4, 60, 90)), video_part(clips(8)), text_part("Compare.")
    expected = ask(daemon, image, video, text)
    blocks = [{"type": "image", "source": source(image)}, {"type": "video", "source": source(video)}, text]
    body = {"messages": [{"role": "user", "content": blocks}], "temperature": 0, "max_tokens": 16}
    answer = post(daemon, "/v1/messages", **body).json()
    assert answer["content"][0]["text"] == expected.choices[0].message.content
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == expected.usage.prompt_tokens
    counted = post(daemon, "/v1/messages/count_tokens", messages=body["messages"]).json()
    assert counted["input_tokens"] == expected.usage.prompt_tokens
    stream = post(daemon, "/v1/messages", **body, stream=True).text
    data = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]
    deltas = [event["delta"].get("text", "") for event in data if event["type"] == "content_block_delta"]
    assert "".join(deltas) == expected.choices[0].message.content
    daemon.wait_idle()


@pytest.mark.daemon("the answers of a real model, by two APIs")
def test_an_answer_that_was_begun_is_gone_on_with(daemon: Daemon) -> None:
    turns = [{"role": "user", "content": "Say something."}, {"role": "assistant", "content": "The answer is"}]
    options = {"messages": turns, "temperature": 0, "max_tokens": 12}
    chat = post(daemon, "/v1/chat/completions", **options, continue_final_message=True).json()
    answer = post(daemon, "/v1/messages", **options).json()
    assert answer["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    counted = post(daemon, "/v1/messages/count_tokens", messages=turns).json()
    assert counted["input_tokens"] == chat["usage"]["prompt_tokens"]
    daemon.wait_idle()


@pytest.mark.daemon("calls that real workers are made to write", chat_template="tools")
def test_calls_are_those_of_chats(daemon: Daemon) -> None:
    chat = ask(daemon, text_part("Draw."), tools=TOOLS[:1], tool_choice="required", max_tokens=300)
    turns: list[Any] = [{"role": "user", "content": "Draw."}]
    tools = [{"name": "draw", "input_schema": SHAPE}]
    prompt = {"messages": turns, "tools": tools, "tool_choice": {"type": "any"}}
    answer = post(daemon, "/v1/messages", **prompt, temperature=0, max_tokens=300).json()
    assert answer["stop_reason"] == "tool_use"
    calls = chat.choices[0].message.tool_calls
    assert [block["input"] for block in answer["content"]] == [json.loads(call.function.arguments) for call in calls]
    for call in calls:
        check(call)
    assert post(daemon, "/v1/messages/count_tokens", **prompt).json()["input_tokens"] == chat.usage.prompt_tokens
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "done"} for block in answer["content"]]
    turns += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]
    last = post(daemon, "/v1/messages", messages=turns, tools=tools, max_tokens=8).json()
    assert last["stop_reason"] in ("end_turn", "max_tokens")
    daemon.wait_idle()


@pytest.mark.daemon("the answers of a real model, by two APIs")
def test_a_chain_of_responses_is_the_whole_conversation(daemon: Daemon) -> None:
    image = {"type": "input_image", "image_url": image_part(make_image(4, 60, 90))["image_url"]["url"]}
    items: list[Any] = []
    previous = None
    for content in [[image, {"type": "input_text", "text": "What is this?"}], "And its colour?", "And its size?"]:
        options: dict[str, Any] = {"model": daemon.engine.model_name, "temperature": 0, "max_output_tokens": 12}
        own = [{"role": "user", "content": content}]
        chained = daemon.client.responses.create(input=own, previous_response_id=previous, **options)
        whole = daemon.client.responses.create(input=[*items, *own], store=False, **options)
        assert chained.output_text == whole.output_text
        assert chained.usage.input_tokens == whole.usage.input_tokens
        items = [*items, *own, *chained.output]
        previous = chained.id
    daemon.wait_idle()
