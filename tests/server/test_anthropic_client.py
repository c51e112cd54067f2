"""The anthropic package as users have it, against a real socket."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from messages_requests import FULL, IMAGE, TEXT, THEIR_TOOLS
from scripted import ScriptedEngine
from scripted_app import listening
from weather_tools import CALL, answering

pytestmark = pytest.mark.skipif(find_spec("anthropic") is None, reason="no anthropic")

HI: list[Any] = [{"role": "user", "content": "Hi"}]
OPTIONS: dict[str, Any] = {"model": "scripted", "max_tokens": 99}


def package() -> Any:
    """The package, whose import takes seconds: of pytest's workers, only the one that runs these tests needs it."""
    return import_module("anthropic")


def talking_to(url: str, key: str = "none") -> Any:
    return package().AsyncAnthropic(base_url=url, api_key=key, max_retries=0)


async def test_whole_and_streamed(url: str) -> None:
    async with talking_to(url) as client:
        message = await client.messages.create(messages=HI, system="Be brief.", **OPTIONS)
        assert (message.content[0].text, message.stop_reason, message.model) == (TEXT, "end_turn", "scripted")
        assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 4)
        assert message._request_id == message.id
        async with client.messages.stream(messages=HI, **OPTIONS) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text == final.content[0].text == TEXT
        assert final.usage.output_tokens == 4
        counted = await client.messages.count_tokens(model="scripted", messages=HI)
        assert counted.input_tokens == len("user:Hi\nassistant:")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tools_turn(streamed: bool) -> None:
    engine = answering(FULL)
    options = {**OPTIONS, "tools": THEIR_TOOLS, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    async with listening(engine) as url, talking_to(url) as client:
        if streamed:
            async with client.messages.stream(messages=HI, **options) as stream:
                message = await stream.get_final_message()
        else:
            message = await client.messages.create(messages=HI, **options)
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.stop_reason == "tool_use"
        assert message.content[2].input == CALL["arguments"]
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "image", "source": IMAGE}]}
            for block in message.content
            if block.type == "tool_use"
        ]
        turns = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        await client.messages.create(messages=turns, **options)
    assert [each["role"] for each in engine.requests[1].messages] == ["user", "assistant", "tool", "tool"]


async def test_errors_are_the_packages_own(url: str) -> None:
    async with talking_to(url) as client:
        with pytest.raises(package().BadRequestError, match="temperature") as bad:
            await client.messages.create(messages=HI, extra_body={"temperature": -1}, **OPTIONS)
        assert bad.value.body["error"]["type"] == "invalid_request_error"
        with pytest.raises(package().NotFoundError, match="claude"):
            await client.messages.create(messages=HI, **{**OPTIONS, "model": "claude"})


async def test_the_key_is_sent(tmp_path: Any) -> None:
    (tmp_path / "keys").write_text("sk-anne-0123456789\n")
    async with listening(ScriptedEngine(api_key_file=str(tmp_path / "keys"))) as url:
        async with talking_to(url, "sk-anne-0123456789") as client:
            assert (await client.messages.create(messages=HI, **OPTIONS)).content[0].text == TEXT
        async with talking_to(url, "wrong") as client:
            with pytest.raises(package().AuthenticationError):
                await client.messages.create(messages=HI, **OPTIONS)
