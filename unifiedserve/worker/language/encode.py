"""Encode: patches of the patch buffer through the vision encoder, into the visual buffer."""

from collections.abc import Generator
from dataclasses import dataclass

import torch

from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.wire import Embeddings, Patches, Room
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.scheduling import EncodeWork
from unifiedserve.worker.cache_log import CacheLog
from unifiedserve.worker.language.patch_pages import PatchPages
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.staged_prompt import StagedPrompt

Batch = list[tuple[StagedPrompt, int]]  # a prompt and one of its units


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Follow units in the encoder: of each the pages that it is read from, and those that it is written to."""

    units: Batch
    patches: list[list[int]]
    visual: list[list[int]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Report what a batch gave: visual tokens for prefill, and pages of windows for further units."""

    units: list[Embeddings]
    room: list[tuple[str, Room]]  # by the name of the host


class EncodeStage:
    """Turn the patches of the table's prompts into rows of the visual buffer."""

    def __init__(self, adapter: LanguageAdapter, patches: PatchPages, visual: RowBuffer, prompts: PromptTable) -> None:
        self._adapter = adapter
        self._patches = patches
        self._visual = visual
        self._prompts = prompts
        self.log = CacheLog("visual", visual.pool)

    def accept(self, message: Patches) -> None:
        """Take the patches of units in; those of a request that is gone are released."""
        prompt = self._prompts.get(message.uid)
        for unit, patches, visual in zip(message.units, message.pages, message.visual, strict=True):
            if prompt is None:
                self._patches.release(patches)
                self._visual.release(visual)
            else:
                prompt.patches[unit], prompt.visual_aside[unit] = patches, visual
        if prompt is not None:
            prompt.decoded = prompt.decoded or message.last

    @torch.inference_mode()
    def begin(self, work: list[EncodeWork]) -> Generator[None, None, EncodedBatch]:
        """Have the device encode the units in one batch. Yields before each layer of the encoder.

        Raises KeyError for prompts that have left.
        """
        batch = [(self._prompts[uid], unit) for uid, units in work for unit in units]
        parts = [prompt.units.parts[unit] for prompt, unit in batch]
        units = [(plan, range(i, i + 1)) for plan, i in parts]
        visual = yield from self._adapter.encode_layers(self._gather(batch), units)
        written = self._write(batch, visual)
        for prompt, _ in batch:
            prompt.encoding += 1
        return EncodedBatch(batch, [prompt.patches.pop(unit) for prompt, unit in batch], written)

    def finish(self, batch: EncodedBatch) -> Encoded:
        """Release the patches of a batch, and the visual tokens of prompts that have left; return the others'."""
        encoded = Encoded([], [])
        for (prompt, unit), patches, pages in zip(batch.units, batch.patches, batch.visual, strict=True):
            prompt.encoding -= 1
            here, request = self._prompts.get(prompt.uid) is prompt, prompt.request
            if here and request.window:
                self._patches.hand_back(patches)
                encoded.room.append((request.ticket.route.vision, Room(uid=prompt.uid, patch=patches)))
            else:
                self._patches.release(patches)
            if here:
                self._log_unit(prompt, unit, pages)
                prompt.encoded(unit)
                encoded.units.append(Embeddings(uid=prompt.uid, unit=unit, pages=pages))
            else:
                self._visual.release(pages)
        return encoded

    def _log_unit(self, prompt: StagedPrompt, unit: int, pages: list[int]) -> None:
        """Remember an encoded unit for the cache.

        Units looked for in another memory, or with passing pages, are left out.
        """
        if keys := prompt.request.unit_keys:
            self.log.looked_up(prompt.uid, prompt.shape.units[unit].tokens, 0)
            if not (prompt.prefilled_elsewhere or prompt.request.window):
                self.log.keep(keys[unit], pages)

    def _gather(self, batch: Batch) -> torch.Tensor:
        """Return the patches of all units, one after the other."""
        return self._patches.read(
            [(prompt.patches[unit], prompt.units.parts[unit][0].patches_per_unit) for prompt, unit in batch]
        )

    def _write(self, batch: Batch, visual: torch.Tensor) -> list[list[int]]:
        """Write the tokens into the pages that were taken for them; return those of each unit."""
        parts = [(prompt.visual_aside.pop(unit), len(prompt.units.rows_of(unit))) for prompt, unit in batch]
        self._visual.write(visual, parts)
        return [pages for pages, _ in parts]
