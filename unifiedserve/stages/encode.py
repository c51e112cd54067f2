"""Encode: patches of the patch buffer through the vision encoder, into the visual buffer."""

import torch

from unifiedserve.memory.content_index import Pages
from unifiedserve.memory.row_buffer import PageRows, RowBuffer
from unifiedserve.messages import Embeddings, Patches
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.scheduling import EncodeWork
from unifiedserve.stages.cache_log import CacheLog
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
        self.log = CacheLog("visual", visual.pool)

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
        for unit, pages in zip(message.units, message.pages, strict=True):
            prompt.patches[unit] = pages
            prompt.state.units[unit].ready = True

    def recall(self, work: list[EncodeWork], prompts: dict[int, Prompt]) -> tuple[list[Embeddings], list[int]]:
        """Take up the units whose tokens were there already; the second list are requests for which some are gone."""
        outputs, stale = [], []
        for uid, units in work:
            if (prompt := prompts.get(uid)) is None:
                continue  # it left after this step was planned
            for unit in (unit for unit in units if unit in prompt.request.reuse.units):
                pages = prompt.request.reuse.units[unit]
                if not self._take_up(uid, pages):
                    stale.append(uid)
                    break
                self._reserve(prompt)
                tokens = prompt.state.units[unit].tokens
                self.log.looked_up(prompt.state.uid, tokens, tokens)
                outputs.append(self._finished(prompt, unit, list(pages.numbers)))
        return outputs, stale

    def _take_up(self, uid: int, pages: Pages) -> bool:
        recalled = self._visual.pool.recall(*pages, uid, self._instance)
        if recalled < len(pages.numbers):
            self._visual.pool.release(pages.numbers[:recalled])
        return recalled == len(pages.numbers)

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
            self._reserve(prompt)
        parts = [(prompt.state.uid, prompt.rows[unit + 1] - prompt.rows[unit]) for prompt, unit in batch]
        written = self._visual.put_all(visual, parts, self._instance)
        if written is None:
            raise RuntimeError("visual buffer: pages that were promised are gone")
        for (prompt, unit), pages in zip(batch, written, strict=True):
            if keys := prompt.request.unit_keys:
                self.log.looked_up(prompt.state.uid, prompt.state.units[unit].tokens, 0)
                self.log.keep(keys[unit], pages)
        return [self._finished(prompt, unit, pages) for (prompt, unit), pages in zip(batch, written, strict=True)]

    def _reserve(self, prompt: Prompt) -> None:
        """All that the request will need of the visual buffer is its own from now on."""
        if not prompt.state.reserved:
            prompt.state.reserved = True
            self._promised[prompt.state.uid] = prompt.state.visual_pages

    def _finished(self, prompt: Prompt, unit: int, pages: list[int]) -> Embeddings:
        self._promised[prompt.state.uid] -= len(pages)
        prompt.state.units[unit].encoded = True
        return Embeddings(uid=prompt.state.uid, unit=unit, pages=pages)

    def drop(self, prompt: Prompt) -> None:
        """Forget a request: what it holds of the patch buffer, and what it was promised of the visual one."""
        for pages in prompt.patches.values():
            self._patches.pool.release(pages)
        prompt.patches.clear()
        self._promised.pop(prompt.state.uid, None)
