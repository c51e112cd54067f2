"""Adjust logits before a token is chosen, as requests ask.

Grammars, biases, penalties, and no end too early do so. The changes are worked out on the host, so that nothing waits
for the device of the logits.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.messages.sampling_params import SamplingParams


class _Change(NamedTuple):
    """Change numbers float32 [n] for some tokens int64 [n] of a row, each only once."""

    row: int
    tokens: Tensor
    numbers: Tensor


def adjust(
    logits: Tensor,
    params: Sequence[SamplingParams],
    histories: Sequence[Sequence[int]],
    indices: Sequence[int],
    eos_token_ids: Sequence[int],
    allowed: Mapping[int, Tensor],
) -> Tensor:
    """Return the logits [B, vocab] after all of it; the same tensor if no request has any. See `sample`."""
    of_all = zip(range(len(params)), params, histories, indices, strict=True)
    rows = [row for row in of_all if row[1].logit_bias or row[1].penalised or row[3] < row[1].min_tokens]
    if not (rows or allowed):
        return logits
    vocab = logits.shape[1]
    biases = [
        _Change(row, torch.tensor([*bias]), torch.tensor([*bias.values()]))
        for row, p, _, index in rows
        if (bias := p.logit_bias | _bans(p, index, eos_token_ids, allowed.get(row), vocab))
    ]
    repetitions = [_repetition(row, p, seen, vocab) for row, p, seen, _ in rows if p.repetition_penalty != 1]
    counted = [
        _counted(row, p, seen[len(seen) - index :])
        for row, p, seen, index in rows
        if index and (p.presence_penalty or p.frequency_penalty)
    ]
    if not (allowed or biases or repetitions or counted):
        return logits
    adjusted = logits.clone(memory_format=torch.contiguous_format)
    flat = adjusted.view(-1)
    for row, mask in allowed.items():
        adjusted[row].masked_fill_(~mask.to(logits.device, non_blocking=True), -math.inf)
    if biases:
        places, numbers = _upload(biases, adjusted)
        flat[places] += numbers
    if repetitions:
        places, numbers = _upload(repetitions, adjusted)
        values = flat[places]
        flat[places] = torch.where(values > 0, values / numbers, values * numbers)
    if counted:
        places, numbers = _upload(counted, adjusted)
        flat[places] -= numbers
    return adjusted


def _bans(
    params: SamplingParams, index: int, eos_token_ids: Sequence[int], allowed: Tensor | None, vocab: int
) -> dict[int, float]:
    """Return biases against all that would end an answer too early; none if a grammar leaves nothing else."""
    if index >= params.min_tokens:
        return {}
    ends = {token for token in (*eos_token_ids, *params.stop_token_ids) if token < vocab}
    left = vocab if allowed is None else int(allowed.sum())
    banned = len(ends) if allowed is None else int(allowed[[*ends]].sum())
    return dict.fromkeys(ends, -math.inf) if left > banned else {}


def _repetition(row: int, params: SamplingParams, history: Sequence[int], vocab: int) -> _Change:
    """Penalise as CTRL does (arXiv:1909.05858 §4.1): positive logits are divided, others multiplied."""
    seen = torch.tensor(history, dtype=torch.int64)
    tokens = torch.unique(seen[seen < vocab])  # a prompt's tokens for media may have no logits
    return _Change(row, tokens, torch.full(tokens.shape, params.repetition_penalty))


def _counted(row: int, params: SamplingParams, output: Sequence[int]) -> _Change:
    """Penalise presence and frequency as OpenAI does."""
    tokens, counts = torch.unique(torch.tensor(output, dtype=torch.int64), return_counts=True)
    return _Change(row, tokens, params.frequency_penalty * counts + params.presence_penalty)


def _upload(changes: Sequence[_Change], logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of all changes in the logits, row after row, and their numbers."""
    places = torch.cat([change.row * logits.shape[1] + change.tokens for change in changes])
    numbers = torch.cat([change.numbers for change in changes])
    return places.to(logits.device, non_blocking=True), numbers.to(logits.device, non_blocking=True)
