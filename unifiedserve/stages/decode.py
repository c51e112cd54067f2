"""Decode: one token more for every running sequence."""

import torch
from torch import Tensor

from unifiedserve.attention import CrossSpan
from unifiedserve.memory.content_keys import page_key
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages import Sequence, Token
from unifiedserve.scheduling import DecodeState
from unifiedserve.stages.cache_log import CacheLog
from unifiedserve.stages.language import LanguageModel, Rows
from unifiedserve.stages.sampler import Key, Sampler
from unifiedserve.stages.sequence import release_pages


class DecodeStage:
    """Owns the KV pages of the running sequences, and the visual pages that they go on to need."""

    def __init__(self, model: LanguageModel, visual: RowBuffer, instance: int, sampler: Sampler) -> None:
        self._model = model
        self._visual = visual
        self._kv = model.kv
        self._instance = instance
        self._sampler = sampler
        self.sequences: dict[Key, Sequence] = {}
        self.log = CacheLog("kv", self._kv.pool)

    def accept(self, sequence: Sequence) -> None:
        self.sequences[sequence.uid, sequence.index] = sequence

    def states(self) -> list[DecodeState]:
        return [
            DecodeState(s.uid, s.index, s.arrival, len(s.token_ids), len(s.pages), s.priority, self._kv.state_pages)
            for s in self.sequences.values()
        ]

    def rows(self, keys: list[Key]) -> list[tuple[Key, Rows]]:
        """The next token of each sequence as model input, less those for which no page could be had."""
        batch = []
        for key in keys:
            sequence = self.sequences[key]
            if self._grow(sequence):
                last = len(sequence.token_ids) - 1
                position = torch.full((self._model.adapter.position_rows, 1), last + sequence.position_offset)
                cross = [CrossSpan(0, 1, self._visual.numbers(sequence.visual))] if sequence.visual else []
                batch.append((key, Rows(sequence.token_ids[last:], position, last, sequence.pages, cross=cross)))
        return batch

    def finish(self, keys: list[Key], logits: Tensor) -> list[Token]:
        """Sample a token for each sequence; those that end release their pages."""
        sequences = [self.sequences[key] for key in keys]
        tokens = self._sampler.next_tokens(sequences, logits)
        for sequence in sequences:
            self._keep_full_pages(sequence)
        for key, token in zip(keys, tokens, strict=True):
            if token.finish:
                self.drop(key)
        return tokens

    def drop(self, key: Key) -> None:
        """Forget a sequence and release its pages."""
        self._sampler.forget(key)
        release_pages(self.sequences.pop(key), self._kv, self._visual)

    def _keep_full_pages(self, sequence: Sequence) -> None:
        """Pages that the last step filled may serve requests that begin with this answer's prompt and text."""
        size = self._kv.page_size
        while sequence.last_key and (sequence.keyed + 1) * size < len(sequence.token_ids):
            start = sequence.keyed * size
            tokens = sequence.token_ids[start : start + size]
            sequence.last_key = page_key(sequence.last_key, tokens, sequence.tail_media)
            self.log.keep(sequence.last_key, [sequence.pages[sequence.keyed]])
            sequence.tail_media = []
            sequence.keyed += 1

    def _grow(self, sequence: Sequence) -> bool:
        missing = self._kv.pages_for(len(sequence.token_ids)) - len(sequence.pages)
        if missing > 0:
            pages = self._kv.pool.allocate(missing, sequence.uid, self._instance)
            if pages is None:
                return False
            sequence.pages.extend(pages.tolist())
        return True
