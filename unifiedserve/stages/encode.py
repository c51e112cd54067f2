"""Encode: patches of the patch buffer through the vision encoder, into the visual buffer."""

import torch

from unifiedserve.memory.row_buffer import PageRows, RowBuffer
from unifiedserve.messages import Embeddings, Patches
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.scheduling import EncodeWork
from unifiedserve.stages.prompt import Prompt

Batch = list[tuple[Prompt, int]]  # a request and one of its units


class EncodeStage:
    """Owns the patch pages that arrive until they are encoded, and writes visual pages."""

    def __init__(self, adapter: LanguageAdapter, patches: RowBuffer, visual: RowBuffer, instance: int) -> None:
        self._adapter = adapter
        self._patches = patches
        self._visual = visual
        self._instance = instance
        self._promised: dict[int, int] = {}

    @property
    def visual_free(self) -> int:
        """Visual pages that no request uses or was promised."""
        return self._visual.pool.free_pages() - sum(self._promised.values())

    def accept(self, message: Patches, prompt: Prompt | None) -> None:
        """Units became ready; those of a request that is gone are released."""
        if prompt is None:
            for pages in message.pages:
                self._patches.pool.release(pages)
            return
        for unit, pages in enumerate(message.pages, message.first_unit):
            prompt.patches[unit] = pages
            prompt.state.units[unit].ready = True

    @torch.inference_mode()
    def step(self, work: list[EncodeWork], prompts: dict[int, Prompt]) -> list[Embeddings]:
        """Encode the units in one batch and release their patches."""
        batch = [(prompts[uid], unit) for uid, units in work for unit in units]
        parts = [prompt.parts[unit] for prompt, unit in batch]
        visual = self._adapter.visual_tokens(self._gather(batch), [(plan, range(i, i + 1)) for plan, i in parts])
        outputs = self._write(batch, visual)
        self._patches.pool.release([page for prompt, unit in batch for page in prompt.patches.pop(unit)])
        return outputs

    def _gather(self, batch: Batch) -> torch.Tensor:
        """The patches of all units, one after the other."""
        pages: list[PageRows] = []
        for prompt, unit in batch:
            pages += self._patches.spread(prompt.patches[unit], prompt.parts[unit][0].patches_per_unit)
        return self._patches.get(pages, 0, sum(rows for _, rows in pages))

    def _write(self, batch: Batch, visual: torch.Tensor) -> list[Embeddings]:
        for prompt, _ in batch:
            if not prompt.state.reserved:
                prompt.state.reserved = True
                self._promised[prompt.state.uid] = prompt.state.visual_pages
        parts = [(prompt.state.uid, prompt.rows[unit + 1] - prompt.rows[unit]) for prompt, unit in batch]
        written = self._visual.put_all(visual, parts, self._instance)
        if written is None:
            raise RuntimeError("visual buffer: pages that were promised are gone")
        outputs = []
        for (prompt, unit), pages in zip(batch, written, strict=True):
            self._promised[prompt.state.uid] -= len(pages)
            prompt.state.units[unit].encoded = True
            outputs.append(Embeddings(uid=prompt.state.uid, unit=unit, pages=pages))
        return outputs

    def drop(self, prompt: Prompt) -> None:
        """Forget a request: what it holds of the patch buffer, and what it was promised of the visual one."""
        for pages in prompt.patches.values():
            self._patches.pool.release(pages)
        prompt.patches.clear()
        self._promised.pop(prompt.state.uid, None)
