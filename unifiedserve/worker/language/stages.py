"""Build the language stages of one worker, over its model, table of prompts and buffers."""

from collections.abc import Collection
from typing import NamedTuple

from unifiedserve.device import Decoder
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.memory.sequence_tables import SequenceTable
from unifiedserve.worker.language.decode import DecodeStage
from unifiedserve.worker.language.decode_ahead import DecodeAhead
from unifiedserve.worker.language.encode import EncodeStage
from unifiedserve.worker.language.model import LanguageModel
from unifiedserve.worker.language.patch_pages import PatchPages
from unifiedserve.worker.language.prefill import PrefillStage
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.sampler import Sampler
from unifiedserve.worker.language.speculation import Speculation


class LanguageStages(NamedTuple):
    """Encode, prefill and decode: all of them can run, those that are not hosted get no work."""

    model: LanguageModel
    visual: RowBuffer
    instance: int
    prompts: PromptTable
    encode: EncodeStage
    prefill: PrefillStage
    decode: DecodeStage
    sampler: Sampler  # of prefill and decode

    @classmethod
    def build(
        cls,
        model: LanguageModel,
        patches: PatchPages,
        visual: RowBuffer,
        sampler: Sampler,
        name: str,
        instance: int,
        speculation: Speculation,
        decoder: Decoder | None = None,
        elsewhere: Collection[str] = (),
        table: SequenceTable | None = None,
    ) -> "LanguageStages":
        """Return the stages of the instance of that `name`; the number `instance` tags the pages that they take.

        A `decoder` decodes on the device by itself. The instances `elsewhere` have another memory. Page tables of what
        is decoded are kept in a `table`.
        """
        ahead = DecodeAhead(decoder, sampler) if decoder else None
        prompts = PromptTable(model.adapter, model.kv, patches, visual, name, elsewhere)
        return cls(
            model,
            visual,
            instance,
            prompts,
            EncodeStage(model.adapter, patches, visual, prompts),
            PrefillStage(model, visual, instance, sampler, prompts),
            DecodeStage(model, visual, instance, sampler, speculation, ahead, table),
            sampler,
        )
