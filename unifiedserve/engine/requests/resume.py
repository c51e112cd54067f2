"""Resume answers that another server has begun, with the tokens that it has generated."""

from collections.abc import Collection

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import TokenLogprob
from unifiedserve.messages.wire import Token

_PARAM = "resume"
_NO_ATTEMPT = 0  # the uid of tokens that no worker here has sampled


def resume(active: ActiveRequest, eos_token_ids: Collection[int], vocab_size: int) -> None:
    """Begin a request's answers with the tokens that it came with; they go on from there, or are complete with them.

    Raises RequestError for tokens that cannot have come from such a request.
    """
    begun = active.planned.request.resume
    if len(begun) > len(active.answers):
        raise RequestError(f"`resume` has {len(begun)} answers, of {len(active.answers)}.", param=_PARAM)
    for index, tokens in enumerate(begun):
        if unknown := next((token for token in tokens if token >= vocab_size), None):
            raise RequestError(f"`resume` has token {unknown}, of {vocab_size}.", param=_PARAM)
        _resume(active, index, tokens, eos_token_ids)


def _resume(active: ActiveRequest, index: int, tokens: list[int], eos_token_ids: Collection[int]) -> None:
    answer, sampling = active.answers[index], active.planned.sampling
    for number, token in enumerate(tokens):
        if answer.finished:
            raise RequestError(f"`resume` goes on with answer {index} where it has ended.", param=_PARAM)
        finish, stop_reason = sampling.finish(token, number + 1, eos_token_ids)
        sampled = TokenLogprob(token)
        delta = answer.push(Token(_NO_ATTEMPT, index, number, sampled, finish, stop_reason))
        answer.last_token = active.arrival
        if delta is not None:
            delta.resumed = True
            active.outputs.put_nowait(delta)
