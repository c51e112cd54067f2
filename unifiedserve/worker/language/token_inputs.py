"""Prepare the language model's inputs for a prompt besides token ids."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unifiedserve.messages.wire import PrefillRequest
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.scopes import Scope, rows_from


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """Give the inputs of a prompt's n tokens. Those generated before a preemption are among them."""

    positions: Tensor  # int64 [P, n]
    position_offset: int  # from a generated token's place to its position
    is_visual: Tensor  # bool [n]
    rows_before: Tensor  # int64 [n + 1]: visual rows before each token
    scopes: list[Scope]  # of visual rows that are kept

    @classmethod
    def of(cls, adapter: LanguageAdapter, request: PrefillRequest) -> "TokenInputs":
        """Return the inputs of a request's tokens."""
        positions, offset = _positions(adapter, request)
        is_visual = torch.isin(torch.tensor(request.token_ids), torch.tensor(sorted(adapter.visual_ids)))
        is_visual[request.num_prompt :] = False  # a placeholder that was generated is a token like any other
        rows_before = torch.cat([torch.zeros(1, dtype=torch.int64), is_visual.cumsum(0)])
        scopes = adapter.scopes(request.token_ids[: request.num_prompt], request.media)
        return cls(positions, offset, is_visual, rows_before, scopes)

    def visual_rows(self, start: int, stop: int) -> range:
        """Return the visual rows that take the places of tokens [start, stop)."""
        return range(int(self.rows_before[start]), int(self.rows_before[stop]))

    def rows_needed(self, start: int) -> list[range]:
        """Return the visual rows that tokens from position `start` on still need."""
        return rows_from(self.scopes, start) or [self.visual_rows(start, len(self.is_visual))]


def _positions(adapter: LanguageAdapter, request: PrefillRequest) -> tuple[Tensor, int]:
    """Return the positions of the tokens so far (the generated ones go on from the prompt's), and what decode adds."""
    prompt = adapter.positions(request.token_ids[: request.num_prompt], request.media)
    offset = adapter.next_position(prompt)
    generated = torch.arange(request.num_prompt, len(request.token_ids)) + offset
    return torch.cat([prompt, generated.expand(len(prompt), -1)], dim=1), offset
