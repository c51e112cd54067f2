"""Run the language model on a ragged batch: prompt chunks and decode tokens in one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unifiedserve.attention import CrossSpan, RaggedBatch, Span
from unifiedserve.memory.kv_cache import KVCache
from unifiedserve.models.adapter import LanguageAdapter


@dataclass(slots=True)
class Rows:
    """Describe new tokens of one sequence: context [start, start + n) of it, whose KV goes to `pages`.

    Only `visual` is on the device.
    """

    token_ids: list[int]
    positions: Tensor  # int64 [P, n]
    start: int
    pages: list[int]
    visual: Tensor | None = None  # [m, hidden]: embeddings of the visual placeholders among them
    is_visual: Tensor | None = None  # bool [n]
    wanted: int | None = 1  # hidden states are wanted of so many of its last tokens; None: of all
    logits: int = 1  # are wanted after so many of its last tokens, whose hidden states are, too
    cross: Sequence[CrossSpan] = ()  # what they attend to besides


class LanguageModel:
    """Run `Rows` of many sequences through the model and the shared KV cache."""

    def __init__(self, adapter: LanguageAdapter, kv: KVCache) -> None:
        self.adapter = adapter
        self.kv = kv

    @torch.inference_mode()
    def run(self, batch: list[Rows]) -> list[Tensor]:
        """Return the hidden states [wanted, hidden] of each."""
        ragged = RaggedBatch.build([self._span(rows) for rows in batch], self.kv.page_size)
        positions = torch.cat([rows.positions for rows in batch], dim=1)
        hidden = self.adapter.forward(self._embed(batch), positions, ragged, self.kv)
        return list(torch.split(hidden, ragged.wanted_indptr.diff().tolist()))

    @torch.inference_mode()
    def next_logits(self, batch: list[Rows], hidden: list[Tensor]) -> Tensor:
        """Return the logits float32 [k, vocab] that are wanted of each, one after another.

        They hold until the next call.
        """
        last = [states[-rows.logits :] for rows, states in zip(batch, hidden, strict=True) if rows.logits]
        return self.adapter.logits(torch.cat(last)) if last else torch.empty(0, 0)

    def _span(self, rows: Rows) -> Span:
        limits = None if rows.is_visual is None else self.adapter.limits(rows.start, rows.is_visual)
        stop = rows.start + len(rows.token_ids)
        return self.kv.span(rows.pages, rows.start, stop, rows.wanted, limits, rows.cross)

    def _embed(self, batch: list[Rows]) -> Tensor:
        token_ids = torch.tensor([token for rows in batch for token in rows.token_ids])
        visual = [rows.visual for rows in batch if rows.visual is not None]
        masks = [
            torch.zeros(len(rows.token_ids), dtype=torch.bool) if rows.is_visual is None else rows.is_visual
            for rows in batch
        ]
        return self.adapter.embed(token_ids, torch.cat(visual) if visual else None, torch.cat(masks))
