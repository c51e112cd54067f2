"""Read the answers to a chat request: plain, or taken apart into thoughts, words and calls."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.media import PromptError
from unifiedserve.server.answers.parser import END_THINK, THINK, AnswerParser
from unifiedserve.server.answers.tool_formats import FORMATS
from unifiedserve.server.chat.tools import ToolUse
from unifiedserve.server.protocol import ServingEngine


class Reading(NamedTuple):
    """Tell the number of answers, and how to read each: `parser` makes a parser; None leaves them plain text."""

    answers: int
    parser: Callable[[], AnswerParser] | None = None
    tool_choice_named: bool = False
    parallel_calls: bool = True
    short_call_ids: bool = False  # nine letters and digits, as Mistral's templates want them


async def reading(work: GenerateRequest, tools: ToolUse | None, engine: ServingEngine, *, streamed: bool) -> Reading:
    """Return how to read the answers. One that is constrained begins with what was asked for: it cannot think first."""
    reasoning = work.sampling.grammar is None and _reasons(engine)
    if tools is None and not reasoning:
        return Reading(work.sampling.n)
    opened = reasoning and await asyncio.to_thread(_opens_reasoning, engine, work)
    tool_format = None if tools is None else tools.format
    return Reading(
        work.sampling.n,
        lambda: AnswerParser(reasoning=reasoning, thinking=opened, tools=tool_format, whole_calls=not streamed),
        tool_choice_named=tools is not None and tools.named,
        parallel_calls=tools is None or tools.parallel,
        short_call_ids=tool_format == FORMATS["mistral"],
    )


def _reasons(engine: ServingEngine) -> bool:
    asked = engine.config.checkpoint.reasoning_parser
    return asked == "think" or (asked == "auto" and END_THINK in str(engine.processor.chat.template))


def _opens_reasoning(engine: ServingEngine, work: GenerateRequest) -> bool:
    """Tell whether a request's prompt ends within <think>."""
    if work.template.get("continue_final_message"):
        return _ends_thinking(_text(work.messages[-1]["content"]))
    try:
        ids = engine.processor.chat.encode([{"role": "user", "content": ""}], **work.template)
    except PromptError:
        return False  # the real messages will get the error
    return _ends_thinking(engine.processor.tokenizer.decode(ids))


def _ends_thinking(prompt: str) -> bool:
    return prompt.rfind(THINK) > prompt.rfind(END_THINK)


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
