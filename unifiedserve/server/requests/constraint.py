"""Constrain an answer's shape: the grammar that OpenAI's and vLLM's fields for it ask for."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.sampling.grammar import (
    JSON_OBJECT,
    GrammarError,
    choice_grammar,
    json_grammar,
    lark_grammar,
    regex_grammar,
)
from unifiedserve.server.requests.formats import JsonObject, JsonSchema, ResponseFormat, StructuredOutputs
from unifiedserve.server.requests.generation import GenerationOptions


class Constraint(NamedTuple):
    """Pair a grammar with the field of the request that it came from."""

    grammar: str
    param: str


class _Wish(NamedTuple):
    param: str
    make: Callable[[], str]


def constraint(options: GenerationOptions) -> Constraint | None:
    """Return what the answer must follow; None leaves it free.

    Raises RequestError 400 for more than one constraint, and for a malformed one.
    """
    wishes = [*_of_response_format(options.response_format), *_of_structured_outputs(options.structured_outputs)]
    wishes += _of_guided(options)
    if not wishes:
        return None
    if len(wishes) > 1:
        raise RequestError(
            f"`{wishes[0].param}` and `{wishes[1].param}` both constrain the answer: give one of them.",
            param=wishes[1].param,
        )
    (wish,) = wishes
    if options.ignore_eos:
        raise RequestError(
            f"`ignore_eos` contradicts `{wish.param}`: the answer ends where its grammar does.", param="ignore_eos"
        )
    try:
        return Constraint(wish.make(), wish.param)
    except GrammarError as error:
        raise RequestError(f"`{wish.param}`: {error}.", param=wish.param) from None


def _of_response_format(asked: ResponseFormat | None) -> Iterator[_Wish]:
    if isinstance(asked, JsonObject):
        yield _Wish("response_format", lambda: json_grammar(JSON_OBJECT))
    elif isinstance(asked, JsonSchema):
        schema = asked.json_schema.schema
        yield _Wish("response_format.json_schema.schema", lambda: json_grammar(_text(schema)))


def _of_structured_outputs(asked: StructuredOutputs | None) -> Iterator[_Wish]:
    if asked is None:
        return
    whitespace = "" if asked.disable_any_whitespace else asked.whitespace_pattern
    given = list(_wishes(asked.json, asked.regex, asked.choice, asked.grammar, whitespace))
    if asked.json_object:
        given.append(_Wish("json_object", lambda: json_grammar(JSON_OBJECT, whitespace)))
    if not given:
        raise RequestError(
            "`structured_outputs` needs one of `json`, `regex`, `choice`, `grammar` and `json_object`.",
            param="structured_outputs",
        )
    for wish in given:
        yield wish._replace(param=f"structured_outputs.{wish.param}")


def _of_guided(options: GenerationOptions) -> Iterator[_Wish]:
    given = _wishes(
        options.guided_json,
        options.guided_regex,
        options.guided_choice,
        options.guided_grammar,
        options.guided_whitespace_pattern,
    )
    for wish in given:
        yield wish._replace(param=f"guided_{wish.param}")


def _wishes(
    json: dict[str, Any] | bool | str | None,
    regex: str | None,
    choice: list[str] | None,
    grammar: str | None,
    whitespace: str | None,
) -> Iterator[_Wish]:
    if json is not None:
        yield _Wish("json", lambda: json_grammar(_text(json), whitespace))
    if regex is not None:
        yield _Wish("regex", lambda: regex_grammar(regex))
    if choice is not None:
        yield _Wish("choice", lambda: choice_grammar(choice))
    if grammar is not None:
        yield _Wish("grammar", lambda: lark_grammar(grammar))


def _text(schema: dict[str, Any] | bool | str) -> str:
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
