"""How a sequence grows by a sampled token, when it ends, and what it gives back then."""

from collections.abc import Collection

from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.api import FinishReason, TokenLogprob
from unifiedserve.messages.wire import Generation, Token
from unifiedserve.sampling.sample import SampledToken


def append_token(sequence: Generation, sampled: SampledToken, eos_token_ids: Collection[int]) -> Token:
    """Add a sampled token; return the event, which says whether it ends the answer."""
    number = sequence.num_generated
    sequence.token_ids.append(sampled.token)
    finish, stop_reason = _finish(sequence, sampled.token, eos_token_ids)
    logprob = TokenLogprob(sampled.token, sampled.logprob, sampled.top)
    return Token(*sequence.key, number, logprob, finish, stop_reason)


def release_pages(sequence: Generation, kv: KVCache, visual: RowBuffer) -> None:
    """Give back all that a sequence holds."""
    kv.release(sequence.pages)
    visual.release(sequence.visual_pages)


def _finish(sequence: Generation, token: int, eos_token_ids: Collection[int]) -> tuple[FinishReason | None, int | None]:
    params = sequence.sampling
    if token in params.stop_token_ids:
        return "stop", token
    if token in eos_token_ids and not params.ignore_eos:
        return "stop", None
    if params.max_tokens is not None and sequence.num_generated >= params.max_tokens:
        return "length", None
    return None, None
