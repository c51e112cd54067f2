"""Log probabilities of a prompt's own tokens: each one's follows from the hidden state before it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from unifiedserve.messages import PromptLogprobs, Request, TokenLogprob
from unifiedserve.models.base import LanguageAdapter

_ROWS = 64  # logits of a whole chunk, or what is said of them in one message, might be too large


@torch.inference_mode()
def prompt_logprobs(request: Request, start: int, hidden: Tensor, adapter: LanguageAdapter) -> Iterator[PromptLogprobs]:
    """Those after the tokens from position `start`, whose hidden states [n, hidden] are given; none if not wanted.

    Nothing follows the prompt's last token yet.
    """
    count = request.sampling.prompt_logprobs
    if count is None:
        return
    following = torch.tensor(request.token_ids[start + 1 : start + 1 + len(hidden)], dtype=torch.int64)
    for first in range(0, len(following), _ROWS):
        token_ids = following[first : first + _ROWS]
        logits = adapter.logits(hidden[first : first + len(token_ids)])
        yield PromptLogprobs(request.uid, start + 1 + first, _scored(logits, token_ids, count))


def _scored(logits: Tensor, token_ids: Tensor, count: int) -> list[TokenLogprob]:
    """Of token_ids int64 [n], by logits [n, vocab] before each; and the `count` likeliest in their places.

    Placeholders of media may lie outside the vocabulary: they are less likely than anything in it.
    """
    logprobs = logits.log_softmax(-1)
    known = token_ids < logprobs.shape[1]
    own = logprobs.gather(1, token_ids.where(known, 0)[:, None])[:, 0].where(known, -torch.inf)
    ranks = 1 + (logprobs > own[:, None]).sum(-1)
    values, ids = logprobs.topk(min(count, logprobs.shape[1]))
    columns = (token_ids.tolist(), own.tolist(), ids.tolist(), values.tolist(), ranks.tolist())
    return [
        TokenLogprob(token, logprob, list(zip(top, top_logprobs, strict=True)), rank)
        for token, logprob, top, top_logprobs, rank in zip(*columns, strict=True)
    ]
