"""What a JSON schema lets a model write: no spaces without end, no properties that nobody declared."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from unifiedserve.sampling.closed_schema import closed
from unifiedserve.sampling.grammar import json_grammar

BYTES = LLTokenizer("byte")
PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/B"}}, "required": ["a"]}
NAMED = {"type": "object", "properties": {"c": {"type": "integer"}}}
SCHEMA = {**PAIR, "$defs": {"B": {"type": "array", "items": NAMED}}}


def allows(schema: Any, text: str, whitespace: str | None = None) -> bool:
    matcher = LLMatcher(BYTES, json_grammar(json.dumps(schema), whitespace), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_json_is_laid_out_as_programs_do(indent: int | str | None, separators: tuple[str, str]) -> None:
    assert allows(SCHEMA, json.dumps({"a": 1, "b": [{"c": 2}, {"c": 3}]}, indent=indent, separators=separators))


@pytest.mark.parametrize("space", ["  ", "\t", "\n\n\n", "\n" + 21 * " "])
def test_spaces_have_an_end(space: str) -> None:
    assert not allows(SCHEMA, f'{{{space}"a":1}}')
    assert allows(SCHEMA, f'{{{space}"a":1}}', r"[ \t\n]*")


@pytest.mark.parametrize("text", ['{"a": 1, "z": 2}', '{"a": 1, "b": [{"c": 2, "z": 3}]}'])
def test_what_is_not_declared_is_not_written(text: str) -> None:
    assert not allows(SCHEMA, text)


@pytest.mark.parametrize(
    "schema",
    [
        {**NAMED, "additionalProperties": True},
        {**NAMED, "additionalProperties": {"type": "integer"}},
        {**NAMED, "required": ["z"]},
        {**NAMED, "patternProperties": {"z": {"type": "integer"}}},
        {"allOf": [NAMED, {"type": "object", "properties": {"z": {"type": "integer"}}}]},
        {**NAMED, "anyOf": [{"required": ["z"]}, {"required": ["c"]}]},
        {"type": "object"},
    ],
)
def test_what_is_declared_elsewhere_is_written(schema: dict[str, Any]) -> None:
    assert allows(schema, '{"c": 1, "z": 2}') or allows(schema, '{"z": 2, "c": 1}')


NAMES = st.sampled_from(["a", "b", "properties", "$ref", "required", "items", "allOf"])
LEAVES = st.sampled_from([{"type": "integer"}, {"type": "string"}, True, {}, {"$ref": "#/$defs/A"}])
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, max_size=2, unique=True), "additionalProperties": st.booleans()},
        ),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS)
def test_a_schema_that_has_answers_keeps_some(schema: Any) -> None:
    whole = {"$defs": {"A": {"type": "object", "properties": {"n": {"type": "integer"}}}}, "anyOf": [schema]}

    def compiles(value: Any) -> bool:
        return not LLMatcher(BYTES, LLMatcher.grammar_from_json_schema(value), log_level=0).is_error()

    assert compiles(closed(whole)) == compiles(whole)
