"""Convert a chat request to the engine's."""

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.chat.tools import ToolUse
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.requests.constraint import Constraint, constraint
from unifiedserve.server.requests.conversation import conversation
from unifiedserve.server.requests.sampling import engine_request, sampling_params


async def generate_request(
    chat: ChatRequest, id: str, fetcher: MediaFetcher, tools: ToolUse | None, defaults: SamplingParams
) -> GenerateRequest:
    """Return the engine's request, its media fetched; raise RequestError, before that if it can be."""
    sampling = _sampling(chat, defaults)
    wanted = _constraint(chat, tools)
    refuse_unless(
        chat.reasoning_effort in (None, "none"),
        "reasoning_effort",
        "`reasoning_effort` can only be 'none': the model thinks as long as it likes.",
    )
    prompt = await conversation(chat, chat.messages, fetcher)
    request = engine_request(chat, id, sampling, wanted, **prompt)
    request.max_ttft = chat.max_ttft / 1000 if chat.max_ttft else None
    request.tell_media = bool(chat.return_media_usage or chat.max_ttft)
    if chat.reasoning_effort == "none":
        request.template.setdefault("enable_thinking", False)
    if tools is not None:
        request.template["tools"] = tools.definitions
        request.special_text = tools.special_text
    return request


def _sampling(chat: ChatRequest, defaults: SamplingParams) -> SamplingParams:
    if None not in (chat.max_tokens, chat.max_completion_tokens):
        refuse_unless(
            chat.max_tokens == chat.max_completion_tokens,
            "max_tokens",
            "`max_tokens` and `max_completion_tokens` mean the same, but differ.",
        )
    refuse_unless(
        not chat.top_logprobs or bool(chat.logprobs),
        "top_logprobs",
        "`top_logprobs` needs `logprobs`: true.",
    )
    logprobs = (chat.top_logprobs or 0) if chat.logprobs else None
    limit = chat.max_completion_tokens or chat.max_tokens
    return sampling_params(chat, defaults, max_tokens=limit, logprobs=logprobs)


def _constraint(chat: ChatRequest, tools: ToolUse | None) -> Constraint | None:
    """Return what the answer must follow: a format, or the grammar of calls."""
    wanted = constraint(chat)
    forced = None if tools is None else tools.constraint
    if wanted is not None and forced is not None:
        raise RequestError(f"`tool_choice` and `{wanted.param}` both constrain the answer.", param="tool_choice")
    return wanted or forced
