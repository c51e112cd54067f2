"""What a chat request wants of tools, and how its answer is to be read."""

import asyncio
from typing import Any, NamedTuple

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.grammar import GrammarError
from unifiedserve.messages import GenerateRequest
from unifiedserve.models.media import PromptError
from unifiedserve.server.answer_parser import END_THINK, THINK, AnswerParser
from unifiedserve.server.constraint import Constraint
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.reply import Reading
from unifiedserve.server.schema import ChatRequest, NamedTool
from unifiedserve.server.tool_formats import FORMATS, ToolFormat, calls_grammar, detect_format, needs_special_text

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class ToolUse(NamedTuple):
    """Tools that an answer may call; `constraint` if it must."""

    format: ToolFormat
    definitions: list[dict[str, Any]]
    special_text: bool
    constraint: Constraint | None
    named: bool
    parallel: bool

    def applied_to(self, request: GenerateRequest) -> GenerateRequest:
        template = {**request.template, "tools": self.definitions}
        request = msgspec.structs.replace(request, template=template, special_text=self.special_text)
        return request if self.constraint is None else self.constraint.applied_to(request)


def tool_use(chat: ChatRequest, engine: ServingEngine) -> ToolUse | None:
    """None if no tool may be called. Raises RequestError 400 for what the model's template cannot do."""
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


async def reading(work: GenerateRequest, tools: ToolUse | None, engine: ServingEngine, *, streamed: bool) -> Reading:
    """How to read the answers. One that is constrained begins with what was asked for: it cannot think first."""
    reasoning = work.sampling.grammar is None and _reasons(engine)
    if tools is None and not reasoning:
        return Reading(work.sampling.n)
    opened = reasoning and await asyncio.to_thread(_opens_reasoning, engine, work.template)
    tool_format = None if tools is None else tools.format
    return Reading(
        work.sampling.n,
        lambda: AnswerParser(reasoning=reasoning, thinking=opened, tools=tool_format, whole_calls=not streamed),
        tool_choice_named=tools is not None and tools.named,
        parallel_calls=tools is None or tools.parallel,
        short_call_ids=tool_format == FORMATS["mistral"],
    )


def _reasons(engine: ServingEngine) -> bool:
    asked = engine.config.reasoning_parser
    return asked == "think" or (asked == "auto" and END_THINK in str(engine.processor.chat.template))


def _opens_reasoning(engine: ServingEngine, template: dict[str, Any]) -> bool:
    """Whether prompts with these template options end within <think>."""
    try:
        ids = engine.processor.chat.encode([{"role": "user", "content": ""}], **template)
    except PromptError:
        return False  # the real messages will get the error
    prompt = engine.processor.tokenizer.decode(ids)
    return bool(prompt.rfind(THINK) > prompt.rfind(END_THINK))


def _format(engine: ServingEngine, template: str) -> ToolFormat | None:
    asked = engine.config.tool_call_parser
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
    except GrammarError as error:
        raise RequestError(f"`tools`: {error}.", param="tools") from None
