"""From logits to tokens, as a pure function of the request's parameters.

Randomness is counter-based: generated token number i of a request draws one uniform from Philox(key=seed, counter=i),
so a token is the same wherever and in whatever batch it is sampled.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unifiedserve.messages.sampling_params import CANDIDATES, SEED_LIMIT, SamplingParams


class SampledToken(NamedTuple):
    """A token; its log-probabilities are of the unmodified distribution, None/empty unless asked for."""

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
    `allowed[i]` bool [vocab] are the tokens that the grammar of row i leaves, at least one; other rows have none.
    Steps, in order: what is not allowed is ruled out, biases, penalties (repetition over prompt and output, presence
    and frequency over the output), temperature, min_p, top_k, top_p. Until `min_tokens` neither EOS nor a stop token
    can come, unless a grammar leaves nothing else.
    A sampling request needs a seed: see `SamplingParams.for_choice`.
    """
    adjusted = _adjust(logits, params, histories, indices, eos_token_ids, allowed or {})
    tokens = adjusted.argmax(dim=-1)
    drawn = [row for row, param in enumerate(params) if not param.greedy]
    if drawn:
        scaled = adjusted[drawn] / torch.tensor([params[row].temperature for row in drawn])[:, None]
        uniforms = torch.tensor([_uniform(params[row], indices[row]) for row in drawn], dtype=torch.float64)
        tokens[drawn] = _draw(scaled, [params[row] for row in drawn], uniforms)
    return _report(logits, params, tokens.tolist())


def _adjust(
    logits: Tensor,
    params: Sequence[SamplingParams],
    histories: Sequence[Sequence[int]],
    indices: Sequence[int],
    eos_token_ids: Sequence[int],
    allowed: Mapping[int, Tensor],
) -> Tensor:
    """Return the logits after penalties and bans; the same tensor if no request has any."""
    changed = [
        row
        for row, p in enumerate(params)
        if row in allowed or p.penalised or p.logit_bias or indices[row] < p.min_tokens
    ]
    if not changed:
        return logits
    adjusted = logits.clone()
    for row in changed:
        if row in allowed:
            adjusted[row].masked_fill_(~allowed[row], -math.inf)
        if bias := params[row].logit_bias:
            adjusted[row].index_add_(0, torch.tensor([*bias]), torch.tensor([*bias.values()]))
        if params[row].penalised:
            _penalise(adjusted[row], params[row], histories[row], indices[row])
        if indices[row] < params[row].min_tokens:
            _ban(adjusted[row], [*eos_token_ids, *params[row].stop_token_ids])
    return adjusted


def _ban(row: Tensor, tokens: Sequence[int]) -> None:
    """Rule tokens out in place, unless that would leave nothing."""
    known = torch.tensor([token for token in tokens if token < len(row)], dtype=torch.int64)
    banned = row.index_fill(0, known, -math.inf)
    if banned.max() > -math.inf:
        row.copy_(banned)


def _penalise(row: Tensor, params: SamplingParams, history: Sequence[int], generated: int) -> None:
    """Penalise in place: repetition as in CTRL (arXiv:1909.05858 §4.1), presence and frequency as OpenAI does."""
    seen = torch.tensor(history, dtype=torch.int64)
    if params.repetition_penalty != 1 and len(seen):
        ids = torch.unique(seen[seen < len(row)])  # a prompt's tokens for media may have no logits
        values = row[ids]
        row[ids] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    if generated and (params.presence_penalty or params.frequency_penalty):
        ids, counts = torch.unique(seen[len(seen) - generated :], return_counts=True)
        row[ids] -= params.frequency_penalty * counts + params.presence_penalty


def _uniform(params: SamplingParams, index: int) -> float:
    if params.seed is None:
        raise ValueError("a sampling request needs a seed")
    return np.random.Generator(np.random.Philox(key=params.seed % SEED_LIMIT, counter=index)).random()


def _draw(logits: Tensor, params: Sequence[SamplingParams], uniforms: Tensor) -> Tensor:
    """Draw token ids [B] by inverse CDF; uniforms [B] in [0, 1)."""
    tokens = torch.empty(len(params), dtype=torch.int64)
    truncated = torch.tensor([p.truncated for p in params])
    plain = ~truncated
    if plain.any():
        tokens[plain] = _pick(logits[plain].softmax(-1), uniforms[plain])
    if truncated.any():
        chosen = [p for p in params if p.truncated]
        tokens[truncated] = _draw_truncated(logits[truncated], chosen, uniforms[truncated], CANDIDATES)
    return tokens


def _draw_truncated(logits: Tensor, params: Sequence[SamplingParams], uniforms: Tensor, candidates: int) -> Tensor:
    """Draw as `_draw` among the `candidates` highest logits; rows that need more of them are drawn from all."""
    vocab = logits.shape[1]
    top_k = torch.tensor([p.top_k if 0 < p.top_k < vocab else vocab for p in params])
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64)
    min_p = torch.tensor([p.min_p for p in params], dtype=torch.float64)
    count = min(vocab, candidates)
    values, ids = _highest(logits, count) if count < vocab else logits.sort(descending=True, stable=True)

    floor = values[:, 0].double() + min_p.log()
    rank = torch.arange(count)
    kept = (values >= floor[:, None]) & (rank < top_k[:, None])
    inside = values.double().masked_fill(~kept, -math.inf)
    total = inside.logsumexp(-1)
    beyond = kept[:, -1] & (top_k > count)  # the cut lies among lower logits, or there is none
    if beyond.any():
        lower = logits[beyond]
        total[beyond] = lower.masked_fill_(lower < floor[beyond, None], -math.inf).logsumexp(-1).double()
    probabilities = (inside - total[:, None]).exp()
    before = probabilities.cumsum(-1) - probabilities
    kept &= (before < top_p[:, None]) | (rank == 0)
    tokens = ids.gather(1, _pick(probabilities * kept, uniforms)[:, None])[:, 0]

    short = kept[:, -1] & beyond
    if count < vocab and short.any():
        rest = [p for p, is_short in zip(params, short.tolist(), strict=True) if is_short]
        tokens[short] = _draw_truncated(logits[short], rest, uniforms[short], vocab)
    return tokens


def _highest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return what `logits.topk(count)` gives, by a partition: much faster for a thousand of a large vocabulary."""
    first = logits.shape[1] - count
    ids = torch.from_numpy(np.argpartition(logits.numpy(), first, axis=1)[:, first:])
    values, order = logits.gather(1, ids).sort(descending=True, stable=True)
    return values, ids.gather(1, order)


def _pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return the index [B] of the entry of weights [B, n] in which uniform × total falls; never one of weight 0."""
    bounds = weights.cumsum(-1, dtype=torch.float64)
    total = bounds[:, -1]
    target = (uniforms * total).minimum(torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(bounds, target[:, None], right=True)[:, 0]
    return index.clamp_(max=weights.shape[1] - 1)  # NaN logits must not index out of range


def _report(logits: Tensor, params: Sequence[SamplingParams], tokens: Sequence[int]) -> list[SampledToken]:
    sampled = [SampledToken(token, None, []) for token in tokens]
    for row, param in enumerate(params):
        if param.logprobs is None:
            continue
        logprobs = logits[row].log_softmax(-1)
        values, ids = logprobs.topk(min(param.logprobs, len(logprobs)))
        top = list(zip(ids.tolist(), values.tolist(), strict=True))
        sampled[row] = SampledToken(tokens[row], float(logprobs[tokens[row]]), top)
    return sampled
