"""Read what is asked about prompts off their hidden states: log probabilities, and one pooled vector."""

from collections.abc import Iterator

import torch
from torch import Tensor

from unifiedserve.messages.api import TokenLogprob
from unifiedserve.messages.wire import PrefillRequest, PromptLogprobs, PromptVector
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.worker.language.staged_prompt import StagedPrompt

_ROWS = 64  # logits of a whole chunk, or what is said of them in one message, might be too large


class PromptReader:
    """Read the chunks of each prompt in their order."""

    def __init__(self, adapter: LanguageAdapter) -> None:
        self._adapter = adapter

    @torch.inference_mode()
    def read(self, prompt: StagedPrompt, start: int, hidden: Tensor) -> Iterator[PromptLogprobs | PromptVector]:
        """Yield what the hidden states [n, hidden] of the tokens from position `start` on tell."""
        request = prompt.request
        count = request.sampling.prompt_logprobs
        if count is not None:
            yield from self._logprobs(request, start, hidden, count)
        if request.embed:
            prompt.pooled = self._pool(prompt.pooled, start, hidden)
            if start + len(hidden) == len(request.token_ids):
                yield PromptVector(request.ticket.uid, prompt.pooled.cpu().numpy().tobytes())

    def _logprobs(self, request: PrefillRequest, start: int, hidden: Tensor, count: int) -> Iterator[PromptLogprobs]:
        """Score the tokens after these; nothing follows the prompt's last one yet."""
        following = request.token_ids[start + 1 : start + 1 + len(hidden)]
        for first in range(0, len(following), _ROWS):
            token_ids = following[first : first + _ROWS]
            logits = self._adapter.logits(hidden[first : first + len(token_ids)])
            yield PromptLogprobs(request.ticket.uid, start + 1 + first, _scored(logits, token_ids, count))

    def _pool(self, before: Tensor | None, start: int, hidden: Tensor) -> Tensor:
        """Return the vector float32 [hidden] of a prompt up to these states.

        It continues that of the `start` states before.
        """
        assert self._adapter.pooling is not None, "admission lets such requests in only where there is one"
        match self._adapter.pooling.mode:
            case "lasttoken":
                return hidden[-1].float()
            case "cls":
                return hidden[0].float() if before is None else before
            case "mean":
                total = hidden.sum(0, dtype=torch.float32)
                return (total if before is None else before * start + total) / (start + len(hidden))


def _scored(logits: Tensor, token_ids: list[int], count: int) -> list[TokenLogprob]:
    """Return n token_ids scored by logits [n, vocab] before each; and the `count` likeliest in their places.

    Placeholders of media may lie outside the vocabulary: they are less likely than anything in it.
    """
    logprobs = logits.log_softmax(-1)
    tokens = torch.tensor(token_ids).to(logits.device, non_blocking=True)
    known = tokens < logprobs.shape[1]
    own = logprobs.gather(1, tokens.where(known, 0)[:, None]).where(known[:, None], -torch.inf)
    ranks = 1 + (logprobs > own).sum(-1, keepdim=True)
    values, ids = logprobs.topk(min(count, logprobs.shape[1]))
    # float64 has room for all of it, so that one copy takes it to the host
    columns = torch.cat([column.double() for column in (own, ranks, ids, values)], dim=1).tolist()
    return [_token_logprob(token, *row) for token, row in zip(token_ids, columns, strict=True)]


def _token_logprob(token: int, own: float, rank: float, *likeliest: float) -> TokenLogprob:
    """Make one of the ids of the likeliest tokens, and behind them their log probabilities."""
    count = len(likeliest) // 2
    top = zip(map(int, likeliest[:count]), likeliest[count:], strict=True)
    return TokenLogprob(token, own, list(top), int(rank))
