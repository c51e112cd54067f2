"""Encode: patches of the patch buffer through the vision encoder, into the visual buffer."""

from collections.abc import Generator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch

from unifiedserve.memory.row_buffer import PageRows, RowBuffer
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import Embeddings, Patches
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.scheduling import EncodeWork
from unifiedserve.worker.cache_log import CacheLog
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.staged_prompt import StagedPrompt

Batch = list[tuple[StagedPrompt, int]]  # a prompt and one of its units


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Units in the encoder: the pages that they are read from, and of each those that it is written to."""

    units: Batch
    patches: list[int]
    visual: list[list[int]]


class EncodeStage:
    """Turns the patches of the table's prompts into rows of the visual buffer."""

    def __init__(
        self, adapter: LanguageAdapter, patches: RowBuffer, visual: RowBuffer, instance: int, prompts: PromptTable
    ) -> None:
        self._adapter = adapter
        self._patches = patches
        self._visual = visual
        self._instance = instance
        self._prompts = prompts
        self.log = CacheLog("visual", visual.pool)

    def accept(self, message: Patches) -> None:
        """Take the patches of units in; those of a request that is gone are released."""
        prompt = self._prompts.get(message.uid)
        for unit, pages in zip(message.units, message.pages, strict=True):
            if prompt is None:
                self._patches.release(pages)
            else:
                prompt.patches[unit] = pages

    def set_aside(self, prompt: StagedPrompt) -> Literal["done", "full", "stale"]:
        """Take the pages of the visual buffer for all of a prompt's units, or none of them.

        "full": others have taken them since this was planned; "stale": visual tokens that were to be reused are gone.
        """
        if prompt.visual_aside is not None:
            return "done"
        prompt.visual_aside = {}
        if not all(self._take_up(prompt, unit, pages) for unit, pages in prompt.request.reuse.units.items()):
            return "stale"
        missing = [unit for unit, shape in enumerate(prompt.shape.units) if not (shape.encoded or shape.cached)]
        counts = [prompt.shape.units[unit].pages for unit in missing]
        if not missing:
            return "done"
        taken = self._visual.pool.allocate(sum(counts), prompt.uid, self._instance)
        if taken is None:
            for recalled in prompt.visual_aside.values():
                self._visual.release(recalled)
            prompt.visual_aside = None
            return "full"
        pages_left = iter(taken.tolist())
        prompt.visual_aside |= {
            unit: list(islice(pages_left, count)) for unit, count in zip(missing, counts, strict=True)
        }
        return "done"

    def recall(self, work: list[EncodeWork]) -> list[Embeddings]:
        """Return the units whose tokens were there already."""
        outputs = []
        for uid, units in work:
            prompt = self._prompts[uid]
            for unit in (unit for unit in units if unit in prompt.request.reuse.units):
                tokens = prompt.shape.units[unit].tokens
                self.log.looked_up(uid, tokens, tokens)
                prompt.encoded(unit)
                outputs.append(Embeddings(uid=prompt.uid, unit=unit, pages=_aside(prompt).pop(unit)))
        return outputs

    @torch.inference_mode()
    def begin(self, work: list[EncodeWork]) -> Generator[None, None, EncodedBatch]:
        """Have the device encode the units in one batch, and yield before each layer of the encoder.

        Raises KeyError for prompts that have left.
        """
        batch = [(self._prompts[uid], unit) for uid, units in work for unit in units]
        parts = [prompt.units.parts[unit] for prompt, unit in batch]
        units = [(plan, range(i, i + 1)) for plan, i in parts]
        visual = yield from self._adapter.encode_layers(self._gather(batch), units)
        written = self._write(batch, visual)
        return EncodedBatch(batch, [page for prompt, unit in batch for page in prompt.patches.pop(unit)], written)

    def finish(self, batch: EncodedBatch) -> list[Embeddings]:
        """Release the patches of a batch, and the visual tokens of prompts that have left; return the others'."""
        self._patches.release(batch.patches)
        outputs = []
        for (prompt, unit), pages in zip(batch.units, batch.visual, strict=True):
            if self._prompts.get(prompt.uid) is prompt:
                if keys := prompt.request.unit_keys:
                    self.log.looked_up(prompt.uid, prompt.shape.units[unit].tokens, 0)
                    self.log.keep(keys[unit], pages)
                prompt.encoded(unit)
                outputs.append(Embeddings(uid=prompt.uid, unit=unit, pages=pages))
            else:
                self._visual.release(pages)
        return outputs

    def _take_up(self, prompt: StagedPrompt, unit: int, pages: Pages) -> bool:
        recalled = self._visual.pool.recall(*pages, prompt.uid, self._instance)
        _aside(prompt)[unit] = list(pages.numbers[:recalled])
        return recalled == len(pages.numbers)

    def _gather(self, batch: Batch) -> torch.Tensor:
        """Return the patches of all units, one after the other."""
        pages: list[PageRows] = []
        for prompt, unit in batch:
            pages += self._patches.spread(prompt.patches[unit], prompt.units.parts[unit][0].patches_per_unit)
        return self._patches.get(pages, 0, sum(rows for _, rows in pages))

    def _write(self, batch: Batch, visual: torch.Tensor) -> list[list[int]]:
        """Write the tokens into the pages that were set aside for them; return those of each unit."""
        parts = [(_aside(prompt).pop(unit), len(prompt.units.rows_of(unit))) for prompt, unit in batch]
        self._visual.write(visual, parts)
        return [pages for pages, _ in parts]


def _aside(prompt: StagedPrompt) -> dict[int, list[int]]:
    """Return the pages that are set aside for a prompt's units."""
    assert prompt.visual_aside is not None, "no pages of the visual buffer were taken"
    return prompt.visual_aside
