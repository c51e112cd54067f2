"""Describe how model families write tool calls: found in answers, and demanded of them by a grammar."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from unifiedserve.sampling.closed_schema import closed
from unifiedserve.sampling.grammar import lark_grammar


class ToolFormat(NamedTuple):
    """Describe calls after `opening`: JSON objects with a `name`. Their arguments are under the key `arguments`.

    With a `closing` each call has marks of its own; else all that follows the opening are calls, in a JSON array if
    `listed`. A `bare` format needs no opening if the answer begins with an object.
    """

    opening: str
    closing: str = ""
    arguments: str = "arguments"
    listed: bool = False
    bare: bool = False


FORMATS = {
    "hermes": ToolFormat("<tool_call>", "</tool_call>"),
    "mistral": ToolFormat("[TOOL_CALLS]", listed=True),
    "llama3_json": ToolFormat("<|python_tag|>", arguments="parameters", bare=True),
}


# As templates write earlier calls (Jinja's tojson): one line, a space after the separators.
_WRITING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def detect_format(template: str) -> ToolFormat | None:
    """Return the format that a chat template writes earlier calls in; None if it has none that we know."""
    for tool_format in FORMATS.values():
        if tool_format.opening in template:
            return tool_format
    return FORMATS["llama3_json"] if "ipython" in template and "parameters" in template else None


def calls_grammar(
    tool_format: ToolFormat,
    schemas: Mapping[str, Any],
    added_tokens: Mapping[str, int],
    *,
    one: bool,
) -> str:
    """Return the grammar of an answer that is calls alone: of the tools with these schemas, a single one if `one`.

    Marks that are `added_tokens` (text to id) of the tokenizer are written as such: as text they would not match.
    """
    rules = ["call: " + " | ".join(f"call_{i}" for i in range(len(schemas)))]
    for i, (name, schema) in enumerate(schemas.items()):
        opening = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{tool_format.arguments}": '
        # A schema stays a root of its own: its references are paths from there.
        arguments = {"type": "object", **closed(schema), "x-guidance": _WRITING}
        rules += [
            f'call_{i}: {json.dumps(opening)} arguments_{i} "}}"',
            f"arguments_{i}: %json {json.dumps(arguments)}",
        ]
    return lark_grammar("\n".join([f"start: {_answer(tool_format, added_tokens, one)}", *rules]))


def _answer(tool_format: ToolFormat, added_tokens: Mapping[str, int], one: bool) -> str:
    def mark(text: str) -> str:
        return f"<[{added_tokens[text]}]>" if text in added_tokens else json.dumps(text)

    if tool_format.closing:
        call = f'{mark(tool_format.opening)} "\\n" call "\\n" {mark(tool_format.closing)}'
        return call if one else f'{call} ("\\n" {call})*'
    if tool_format.listed:
        more = "" if one else ' ("," " "? call)*'
        return f'{mark(tool_format.opening)} " "? "[" call{more} "]"'
    return "call" if one else 'call (";" " "? call)*'


def needs_special_text(tool_format: ToolFormat, special_ids: Mapping[str, int]) -> bool:
    """Return whether the marks are special tokens, which text does not show as a rule."""
    marks: Sequence[str] = [tool_format.opening, tool_format.closing]
    return any(mark in special_ids for mark in marks)
