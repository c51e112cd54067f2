"""Encode: patches of the patch buffer through the vision encoder, into the visual buffer."""

import torch

from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages import Embeddings, Patches
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.scheduling import EncodeWork
from unifiedserve.stages.prompt import Prompt


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
        rows, units = [], []
        for prompt, unit in batch:
            plan, pages = prompt.plans[unit], prompt.patches[unit]
            rows.append(self._patches.get(self._patches.spread(pages, plan.patches_per_unit), 0, plan.patches_per_unit))
            units.append((plan, 1))
        visual = self._adapter.encode(torch.cat(rows), units)
        outputs, first = [], 0
        for prompt, unit in batch:
            last = first + prompt.plans[unit].tokens_per_unit
            outputs.append(self._write(prompt, unit, visual[first:last]))
            self._patches.pool.release(prompt.patches.pop(unit))
            first = last
        return outputs

    def _write(self, prompt: Prompt, unit: int, rows: torch.Tensor) -> Embeddings:
        state = prompt.state
        if not state.reserved:
            state.reserved = True
            self._promised[state.uid] = state.visual_pages
        pages = self._visual.put(rows, state.uid, self._instance)
        if pages is None:
            raise RuntimeError(f"visual buffer: the pages promised to request {state.uid} are gone")
        self._promised[state.uid] -= len(pages)
        state.units[unit].encoded = True
        return Embeddings(uid=state.uid, unit=unit, pages=pages)

    def drop(self, prompt: Prompt) -> None:
        """Forget a request: what it holds of the patch buffer, and what it was promised of the visual one."""
        for pages in prompt.patches.values():
            self._patches.pool.release(pages)
        prompt.patches.clear()
        self._promised.pop(prompt.state.uid, None)
