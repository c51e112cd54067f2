"""Adjust logits before a token is chosen, as requests ask.

Grammars, biases, penalties, and no end too early do so. The changes are worked out on the host, so that nothing waits
for the device of the logits.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.device import upload_behind
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.sampling.seen import Seen


class Pending(NamedTuple):
    """Hold the last tokens of some rows, int64 [n], on their device.

    The host does not know them yet: the rows' histories lack them.
    """

    rows: Sequence[int]
    tokens: Tensor


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
    seen: Mapping[int, Tensor],
    pending: Pending | None = None,
) -> Tensor:
    """Return the logits [B, vocab] after all of it; the same tensor if no request has any. See `Draw`."""
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
    repetitions = [
        _Change(row, tokens, torch.full(tokens.shape, p.repetition_penalty))
        for row, p, history, _ in rows
        if p.repetition_penalty != 1
        for tokens in [seen[row] if row in seen else Seen(vocab).tokens(history)]
    ]
    counted = [
        _counted(row, p, history[len(history) - index :])
        for row, p, history, index in rows
        if index and (p.presence_penalty or p.frequency_penalty)
    ]
    if not (allowed or biases or repetitions or counted):
        return logits
    adjusted = logits.clone(memory_format=torch.contiguous_format)
    flat = adjusted.view(-1)
    for row, mask in allowed.items():
        adjusted[row].masked_fill_(~upload_behind(mask, logits.device), -math.inf)
    if biases:
        places, numbers = _upload(biases, adjusted)
        flat[places] += numbers
    if repetitions:
        _penalise_repetition(adjusted, repetitions, params, pending)
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


def _penalise_repetition(
    logits: Tensor, changes: Sequence[_Change], params: Sequence[SamplingParams], pending: Pending | None
) -> None:
    """Penalise as CTRL does (arXiv:1909.05858 §4.1): positive logits are divided, others multiplied.

    A pending token may be among those that the host knows: it is written twice then, with the same value.
    """
    flat = logits.view(-1)
    places, numbers = _upload(changes, logits)
    if pending:
        rows = upload_behind(torch.tensor(pending.rows), logits.device)
        own = torch.tensor([params[row].repetition_penalty for row in pending.rows])
        tokens = pending.tokens.clamp(min=0)  # of a row that is void, if it has not been decided
        places = torch.cat((places, rows * logits.shape[1] + tokens))
        numbers = torch.cat((numbers, upload_behind(own, logits.device)))
    values = flat[places]
    flat[places] = torch.where(values > 0, values / numbers, values * numbers)


def _counted(row: int, params: SamplingParams, output: Sequence[int]) -> _Change:
    """Penalise presence and frequency as OpenAI does."""
    tokens, counts = torch.unique(torch.tensor(output, dtype=torch.int64), return_counts=True)
    return _Change(row, tokens, params.frequency_penalty * counts + params.presence_penalty)


def _upload(changes: Sequence[_Change], logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of all changes in the logits, row after row, and their numbers."""
    places = torch.cat([change.row * logits.shape[1] + change.tokens for change in changes])
    numbers = torch.cat([change.numbers for change in changes])
    return upload_behind(places, logits.device), upload_behind(numbers, logits.device)
