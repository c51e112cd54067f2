"""Offer the tools of a chat request, and the calls that it demands."""

from typing import Any, NamedTuple

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.sampling.grammar import GrammarError
from unifiedserve.server.answers.tool_formats import (
    FORMATS,
    ToolFormat,
    calls_grammar,
    detect_format,
    needs_special_text,
)
from unifiedserve.server.chat.request import ChatRequest, NamedTool
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.constraint import Constraint

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class ToolUse(NamedTuple):
    """List tools that an answer may call, with a `constraint` if it must."""

    format: ToolFormat
    definitions: list[dict[str, Any]]
    special_text: bool
    constraint: Constraint | None
    named: bool
    parallel: bool


def tool_use(chat: ChatRequest, engine: ServingEngine) -> ToolUse | None:
    """Return the use of tools; None if none may be called.

    Raises RequestError 400 for what the model's template cannot do.
    """
    tools, choice = chat.tools or [], chat.tool_choice or "auto"
    forced = choice == "required" or isinstance(choice, NamedTool)
    if not tools and forced:
        raise RequestError("`tool_choice` needs `tools` to choose from.", param="tool_choice")
    if not tools or choice == "none":
        return None
    template = str(engine.processor.chat.template or "")
    tool_format = _format(engine, template)
    if "tools" not in template or tool_format is None:
        raise RequestError(
            "The model's chat template has no place for tools: start the server with a --chat-template that has"
            if "tools" not in template
            else "The chat template does not tell how the model calls tools: start the server with --tool-call-parser",
            param="tools",
        )
    special_ids = engine.processor.chat.special_ids
    return ToolUse(
        tool_format,
        [msgspec.to_builtins(tool) for tool in tools],
        needs_special_text(tool_format, special_ids),
        _constraint(chat, tool_format, engine.processor.tokenizer.get_added_vocab()) if forced else None,
        named=isinstance(choice, NamedTool),
        parallel=chat.parallel_tool_calls is not False,
    )


def _format(engine: ServingEngine, template: str) -> ToolFormat | None:
    asked = engine.config.checkpoint.tool_call_parser
    return detect_format(template) if asked == "auto" else FORMATS[asked]


def _constraint(chat: ChatRequest, tool_format: ToolFormat, added_tokens: dict[str, int]) -> Constraint:
    schemas = {tool.function.name: tool.function.parameters or _NO_PARAMETERS for tool in chat.tools or ()}
    one = chat.parallel_tool_calls is False
    if isinstance(chat.tool_choice, NamedTool):
        name = chat.tool_choice.function.name
        if name not in schemas:
            raise RequestError(f"`tools` has no function `{name}`.", param="tool_choice.function.name")
        schemas, one = {name: schemas[name]}, True
    try:
        return Constraint(calls_grammar(tool_format, schemas, added_tokens, one=one), "tools")
    except (GrammarError, RecursionError) as error:
        raise RequestError(f"`tools`: {error}.", param="tools") from None
