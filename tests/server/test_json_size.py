"""Bodies are counted as a parser would, without one; what is allowed is parsed once, and holds nobody up."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedEngine
from scripted_app import connected
from weather_tools import answering

from unifiedserve.errors import RequestError
from unifiedserve.server.completions.request import CompletionRequest
from unifiedserve.server.requests import json_size as counting
from unifiedserve.server.requests import parse
from unifiedserve.server.requests.json_size import JsonSize, json_size

PATH = "/v1/chat/completions"
texts = st.text(alphabet='"\\:,{}[]aé', max_size=8)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


def counted(value: Any) -> JsonSize:
    """Count in the parsed value."""
    if not isinstance(value, dict | list):
        return JsonSize(0, 0, 0)
    inner = [counted(item) for item in (value.values() if isinstance(value, dict) else value)]
    names = len(value) if isinstance(value, dict) else 0
    sums = [sum(each) for each in zip(*inner, strict=True)] or [0, 0, 0]
    return JsonSize(names + sums[0], 1 + sums[1], max(0, len(value) - 1) + sums[2])


@given(value=values, piece=st.integers(1, 20))
def test_signs_outside_of_strings_are_counted(value: Any, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_PIECE", piece)
        assert json_size(json.dumps(value).encode()) == counted(value)
        assert json_size(json.dumps(value, ensure_ascii=False, indent=1).encode()) == counted(value)
    if isinstance(value, dict):
        assert parse._checked_names(value) == counted(value).names


USER = {"role": "user", "content": "a"}
CHAT = {"messages": [USER], "max_tokens": 9}
DEEP: list[tuple[str, Callable[[Any], Any]]] = [
    (PATH, lambda deep: {**CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": deep}}]}),
    (PATH, lambda deep: {**CHAT, "guided_json": deep}),
    ("/v1/responses", lambda deep: {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": deep}]}),
    ("/v1/responses", lambda deep: {"input": [{**CALL, "parsed_arguments": deep}]}),
    ("/v1/messages", lambda deep: {**CHAT, "tools": [{"name": "f", "input_schema": deep}]}),
    ("/v1/messages/count_tokens", lambda deep: {"messages": [USER], "tools": [{"name": "f", "input_schema": deep}]}),
]
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize("case", range(len(DEEP)))
@pytest.mark.parametrize("padding", [0, 1 << 17])
async def test_deep_json_is_refused_before_anything_walks_it(case: int, padding: int) -> None:
    """A large body is parsed on another stack, which holds more levels than what comes later."""
    path, body = DEEP[case]
    async with connected(answering("Well.")) as client:
        for levels, status in ((100, 200), (500, 400), (975, 400)):
            deep = '{"a":' * levels + "1" + "}" * levels
            data = json.dumps(body("deep")).replace('"deep"', deep) + " " * padding
            response = await client.post(path, content=data, headers={"content-type": "application/json"})
            assert response.status_code == status, response.text
            assert status == 200 or "nested deeper than 128 levels" in response.text


def test_a_large_body_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda *given, **named: calls.append("again") or loads(*given, **named))
    body = b'{"prompt":[%s]}' % b",".join(b"%d" % number for number in range(100_000))
    assert parse.parse(body, CompletionRequest).prompt == list(range(100_000))
    assert calls == []
    twice = body[:-1] + b',"n":1,"n":2}'
    with pytest.raises(RequestError, match="`n` comes twice"):
        parse.parse(twice, CompletionRequest)


def test_as_many_ids_as_the_context_holds_are_parsed_and_not_many_more() -> None:
    body = b'{"prompt":[%s]}' % b",".join([b"1"] * 600_001)
    with pytest.raises(RequestError, match="600000 commas"):
        parse.parse(body, CompletionRequest, 1000)
    assert len(msgspec.to_builtins(parse.parse(body, CompletionRequest, 500_000).prompt)) == 600_001


def test_signs_in_texts_do_not_count() -> None:
    body = msgspec.json.encode({"prompt": "a: {b}, " * 100_000})
    assert parse.parse(body, CompletionRequest).prompt == "a: {b}, " * 100_000


async def test_arguments_of_too_many_names_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = json.dumps({f"name{number}": 0 for number in range(5001)})
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    asked = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call] * 4}]}
    async with connected(ScriptedEngine()) as client:
        response: httpx.Response = await client.post(PATH, json=asked)
        assert response.status_code == 400
        assert "20004 colons together" in response.json()["error"]["message"]
        asked["messages"][1]["tool_calls"] = [call] * 3
        assert (await client.post(PATH, json=asked)).status_code == 200
