"""Turn logits into tokens, as a pure function of the request's parameters.

Randomness is counter-based: generated token number i of a request draws one uniform from Philox(key=seed, counter=i),
so a token is the same wherever and in whatever batch it is sampled.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unifiedserve.device import likeliest, upload_behind
from unifiedserve.messages.sampling_params import CANDIDATES, MAX_LOGPROBS, SEED_LIMIT, SamplingParams
from unifiedserve.sampling.adjust import Pending, adjust
from unifiedserve.sampling.pick import Pick, pick_one_of_few

_ROWS = 16  # whose whole vocabulary is worked on at a time: more would take much fresh memory
_UNDECIDED = -1
_UNIFORMS = 64  # drawn at once: making a generator takes as long as many numbers


class SampledToken(NamedTuple):
    """Hold a token. Its log-probabilities are of the unmodified distribution, None/empty unless asked for."""

    token: int
    logprob: float | None
    top: list[tuple[int, float]]


def sample(
    logits: Tensor,
    params: Sequence[SamplingParams],
    histories: Sequence[Sequence[int]],
    indices: Sequence[int],
    eos_token_ids: Sequence[int] = (),
    allowed: Mapping[int, Tensor] | None = None,
) -> list[SampledToken]:
    """Draw one token for each row of float32 logits [B, vocab] (not modified).

    `histories[i]` are the request's token ids so far, prompt first; the last `indices[i]` of them were generated.
    `allowed[i]` bool [vocab], on the host, are the tokens that the grammar of row i leaves, at least one; other rows
    have none. Steps, in order: forbidden tokens are ruled out, biases, penalties (repetition over prompt and output,
    presence and frequency over the output), temperature, min_p, top_k, top_p. Until `min_tokens` neither EOS nor a stop
    token can come, unless a grammar leaves nothing else. The host waits for the device of the logits once, once more if
    logits far from the highest count in a truncated row, and once for log-probabilities. A sampling request needs a
    seed: see `SamplingParams.for_choice`.
    """
    draw = Draw(logits, params, histories, indices, eos_token_ids, allowed)
    return draw.finish(draw.tokens.tolist())


class Draw:
    """Hold a draw as `sample` has it, whose tokens are on their way.

    tokens   int64 [B], on the device of the logits; below 0 where the host has yet to decide: `finish` does

    A history is looked at only if its request's parameters `follow` it. `seen[i]` are the distinct tokens of history i,
    int64 [n] on the host; others are found out. The last tokens of some histories may be `pending`: these lack them,
    and their requests do not `wait` for them. With `keep` the logits may be overwritten before the end.
    """

    def __init__(
        self,
        logits: Tensor,
        params: Sequence[SamplingParams],
        histories: Sequence[Sequence[int]],
        indices: Sequence[int],
        eos_token_ids: Sequence[int] = (),
        allowed: Mapping[int, Tensor] | None = None,
        *,
        seen: Mapping[int, Tensor] | None = None,
        pending: Pending | None = None,
        keep: bool = False,
    ) -> None:
        if keep and any(p.logprobs is not None or p.truncated for p in params):
            logits = logits.clone()
        self._logits, self._params, self._indices = logits, params, indices
        self._adjusted = adjust(logits, params, histories, indices, eos_token_ids, allowed or {}, seen or {}, pending)
        self.tokens = _choose(self._adjusted, params, indices)

    def finish(self, tokens: list[int]) -> list[SampledToken]:
        """Return what was drawn, given the values of `tokens`."""
        if undecided := [row for row, token in enumerate(tokens) if token == _UNDECIDED]:
            parts = [undecided[first : first + _ROWS] for first in range(0, len(undecided), _ROWS)]
            again = [self._draw_again(part) for part in parts]
            tokens = list(tokens)
            for row, token in zip(undecided, torch.cat(again).tolist(), strict=True):
                tokens[row] = token
        return _report(self._logits, self._params, tokens)

    def _draw_again(self, rows: Sequence[int]) -> Tensor:
        drawn = _Drawn.of(self._adjusted, self._params, self._indices, rows)
        return _draw_truncated(drawn.scaled(self._adjusted), drawn, self._adjusted.shape[1])


class _Drawn(NamedTuple):
    """Hold rows that are drawn, on the device of their logits. `params` are theirs."""

    params: Sequence[SamplingParams]
    rows: Tensor  # int64 [n]
    temperatures: Tensor  # float32 [n, 1]
    uniforms: Tensor  # float64 [n], in [0, 1)

    @classmethod
    def of(
        cls, logits: Tensor, params: Sequence[SamplingParams], indices: Sequence[int], rows: Sequence[int]
    ) -> "_Drawn":
        own = [params[row] for row in rows]
        columns = [[p.temperature for p in own], [_uniform(params[row], indices[row]) for row in rows]]
        temperatures, uniforms = _upload(columns, torch.float64, logits.device)
        at = _upload(rows, torch.int64, logits.device)
        return cls(own, at, temperatures.float()[:, None], uniforms)

    def scaled(self, logits: Tensor, part: slice = slice(None)) -> Tensor:
        """Return a part of the rows' logits [n, vocab], divided by the temperatures; `logits` are those of all rows."""
        own = logits[part] if len(self.rows) == len(logits) else logits[self.rows[part]]
        return own if all(p.temperature == 1 for p in self.params[part]) else own / self.temperatures[part]


def _choose(logits: Tensor, params: Sequence[SamplingParams], indices: Sequence[int]) -> Tensor:
    """Return a token for each row of adjusted logits, int64 [B] on their device; _UNDECIDED where others matter."""
    plain = [row for row, p in enumerate(params) if not p.greedy and not p.truncated]
    truncated = [row for row, p in enumerate(params) if not p.greedy and p.truncated]
    all_drawn = len(plain) + len(truncated) == len(params)
    chosen = logits.new_empty(len(params), dtype=torch.int64) if all_drawn else likeliest(logits)
    if plain:
        drawn = _Drawn.of(logits, params, indices, plain)
        chosen[drawn.rows] = _draw_plain(logits, drawn)
    if truncated:
        drawn = _Drawn.of(logits, params, indices, truncated)
        # one more shows whether top_k cuts between equals
        chosen[drawn.rows] = _draw_truncated(drawn.scaled(logits), drawn, CANDIDATES + 1)
    return chosen


def _uniform(params: SamplingParams, index: int) -> float:
    if params.seed is None:
        raise ValueError("a sampling request needs a seed")
    block, place = divmod(index, _UNIFORMS)
    return _uniforms(params.seed % SEED_LIMIT, block * _UNIFORMS)[place]


@lru_cache(maxsize=1024)
def _uniforms(key: int, first: int) -> list[float]:
    """Return the numbers for generated tokens `first` and on: of each counter's four the first."""
    generator = np.random.Generator(np.random.Philox(key=key, counter=first))
    numbers: list[float] = generator.random(4 * _UNIFORMS)[::4].tolist()
    return numbers


def _draw_plain(logits: Tensor, drawn: _Drawn) -> Tensor:
    """Draw token ids [n] by inverse CDF among all tokens."""
    pick = Pick(min(_ROWS, len(drawn.rows)), logits.shape[1], logits.device)
    parts = [slice(first, first + _ROWS) for first in range(0, len(drawn.rows), _ROWS)]
    return torch.cat([pick(drawn.scaled(logits, part).softmax(-1), drawn.uniforms[part]) for part in parts])


def _draw_truncated(logits: Tensor, drawn: _Drawn, candidates: int) -> Tensor:
    """Draw token ids [n] by inverse CDF among the `candidates` highest logits; _UNDECIDED where others matter."""
    device, vocab = logits.device, logits.shape[1]
    count = min(vocab, candidates)
    limits = [p.top_k if 0 < p.top_k < vocab else vocab for p in drawn.params]
    columns = [limits, [p.top_p for p in drawn.params], [p.min_p for p in drawn.params]]
    top_k, top_p, min_p = _upload(columns, torch.float64, device)[:, :, None]
    values, ids = _highest(logits, count)

    rank = torch.arange(count, device=device)
    kept = (values >= values[:, :1].double() + min_p.log()) & (rank < top_k)
    inside = values.double().masked_fill(~kept, -torch.inf)
    total = inside.logsumexp(-1)
    unlimited = [row for row, p in enumerate(drawn.params) if limits[row] > count and p.min_p == 0]
    if unlimited:
        at = _upload(unlimited, torch.int64, device)
        total[at] = (logits if len(unlimited) == len(logits) else logits[at]).logsumexp(-1).double()
    probabilities = (inside - total[:, None]).exp()
    before = probabilities.cumsum(-1) - probabilities
    weights = probabilities * (kept & ((before < top_p) | (rank == 0)))
    tokens = ids.gather(1, pick_one_of_few(weights, drawn.uniforms)[:, None])[:, 0]
    if count == vocab:
        return tokens
    tied = ((weights > 0) & (values == values[:, -1:])).any(-1)  # and so might be others, with lower ids
    return tokens.masked_fill(tied | (kept[:, -1:] & (min_p > 0))[:, 0], _UNDECIDED)


def _highest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest logits of each row and their ids. Of equal ones those with lower ids come first.

    Which of those that equal the last are among them is up to the device.
    """
    if count == logits.shape[1]:
        values, ids = logits.sort(descending=True, stable=True)
        return values, ids
    ids = logits.topk(count, sorted=False).indices.sort().values
    values, order = logits.gather(1, ids).sort(descending=True, stable=True)
    return values, ids.gather(1, order)


def _report(logits: Tensor, params: Sequence[SamplingParams], tokens: Sequence[int]) -> list[SampledToken]:
    sampled = [SampledToken(token, None, []) for token in tokens]
    rows = [row for row, param in enumerate(params) if param.logprobs is not None]
    if not rows:
        return sampled
    some = logits if len(rows) == len(logits) else logits[_upload(rows, torch.int64, logits.device)]
    chosen = _upload([[tokens[row]] for row in rows], torch.int64, logits.device)
    parts = [_logprobs(*part) for part in zip(torch.split(some, _ROWS), torch.split(chosen, _ROWS), strict=True)]
    for row, (own, *top) in zip(rows, torch.cat(parts).tolist(), strict=True):
        likeliest = list(zip(map(int, top[1::2]), top[::2], strict=True))
        sampled[row] = SampledToken(tokens[row], own, likeliest[: params[row].logprobs])
    return sampled


def _logprobs(logits: Tensor, chosen: Tensor) -> Tensor:
    """Return the log-probabilities of the chosen ids [n, 1], then the likeliest's. Each comes before its id.

    The result is float64, in which ids are exact, so that one copy takes all to the host.
    """
    logprobs = logits.log_softmax(-1)
    values, ids = _highest(logprobs, min(MAX_LOGPROBS, logits.shape[1]))
    top = torch.stack((values.double(), ids.double()), dim=-1).flatten(1)
    return torch.cat((logprobs.gather(1, chosen).double(), top), dim=1)


def _upload(numbers: Sequence[object], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy numbers to a device behind the work that it has, without waiting for that."""
    return upload_behind(torch.tensor(numbers, dtype=dtype), device)
