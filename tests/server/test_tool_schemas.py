"""Schemas of tools that refer to themselves: a demanded call follows them, whichever tool it is of."""

from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel
from scripted_app import listening
from weather_tools import TEMPLATE, answering, wrapped

from unifiedserve.server.answers.tool_formats import FORMATS, calls_grammar

BYTES = LLTokenizer("byte")


class P(BaseModel, extra="forbid"):
    x: int


class Line(BaseModel, extra="forbid"):
    start: P
    end: P | None = None


class Tree(BaseModel, extra="forbid"):
    label: str
    children: "list[Tree]" = []


def tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


OTHER_P = {
    "type": "object",
    "properties": {"start": {"$ref": "#/definitions/P"}},
    "required": ["start"],
    "definitions": {"P": {"enum": ["left", "right"]}},
}
ITSELF = {"type": "object", "properties": {"deeper": {"$ref": "#"}}, "additionalProperties": False}
TOOLS = [
    tool("line", Line.model_json_schema()),
    tool("side", OTHER_P),
    tool("tree", Tree.model_json_schema()),
    tool("nest", ITSELF),
    tool("free", {"properties": {"x": {"type": "integer"}}}),
]
RIGHT = [
    ("line", {"start": {"x": 1}, "end": {"x": 2}}),
    ("side", {"start": "left"}),
    ("tree", {"label": "a", "children": [{"label": "b", "children": [{"label": "c"}]}]}),
    ("nest", {"deeper": {"deeper": {}}}),
    ("free", {"x": 1}),
]
WRONG = [
    ("line", {"start": "left"}),
    ("side", {"start": {"x": 1}}),
    ("tree", {"label": "a", "children": [{"name": "b"}]}),
    ("nest", {"deeper": {"wider": {}}}),
    ("free", []),
]


def follows(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("choice", ["required", "each"])
async def test_a_demanded_call_follows_its_own_schema(choice: str, streamed: bool) -> None:
    engine = answering(wrapped({"name": "line", "arguments": {"start": {"x": 1}}}), TEMPLATE)
    async with (
        listening(engine) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        for (name, right), (_, wrong) in zip(RIGHT, WRONG, strict=True):
            named: Any = {"type": "function", "function": {"name": name}}
            await client.chat.completions.create(
                model="scripted",
                messages=[{"role": "user", "content": "Go"}],
                tools=TOOLS,
                tool_choice=named if choice == "each" else "required",
                stream=streamed,
            )
            grammar = str(engine.requests[-1].sampling.grammar)
            assert follows(grammar, wrapped({"name": name, "arguments": right}))
            assert not follows(grammar, wrapped({"name": name, "arguments": wrong}))


@given(st.text(min_size=1, max_size=20))
def test_any_name_is_written_as_templates_write_it(name: str) -> None:
    grammar = calls_grammar(FORMATS["hermes"], {name: {"type": "object"}}, {}, one=True)
    assert follows(grammar, wrapped({"name": name, "arguments": {"a": [1, "b"]}}))
    assert not follows(grammar, wrapped({"name": name + "x", "arguments": {}}))


@pytest.mark.parametrize("required", [[["x"]], [{}], [1]])
def test_names_that_are_no_names_fail_no_request(required: list[Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": required}
    for tool_format in FORMATS.values():
        assert calls_grammar(tool_format, {"f": schema}, {}, one=True)
