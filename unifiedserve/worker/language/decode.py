"""Decode: one token more for every running sequence."""

import time

import torch
from torch import Tensor

from unifiedserve.attention import CrossSpan
from unifiedserve.memory.content_keys import page_key
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.wire import Generation, Token
from unifiedserve.scheduling import DecodeState
from unifiedserve.worker.cache_log import CacheLog
from unifiedserve.worker.language.model import LanguageModel, Rows
from unifiedserve.worker.language.sampler import Key, Sampler
from unifiedserve.worker.language.sequence import release_pages


class DecodeStage:
    """Owns the KV pages of the running sequences, and the visual pages that they go on to need."""

    def __init__(self, model: LanguageModel, visual: RowBuffer, instance: int, sampler: Sampler) -> None:
        self._model = model
        self._visual = visual
        self._kv = model.kv
        self._instance = instance
        self._sampler = sampler
        self._running: dict[Key, Generation] = {}
        self._waiting: dict[int, float] = {}  # since when (monotonic seconds) requests wait for their first step
        self.log = CacheLog("kv", self._kv.pool)

    def __len__(self) -> int:
        return len(self._running)

    def accept(self, generation: Generation) -> None:
        """Take over an answer and the pages that it holds."""
        self._running[generation.key] = generation
        self._running = dict(sorted(self._running.items(), key=lambda item: (item[1].ticket.turn, item[1].index)))
        self._waiting.setdefault(generation.ticket.uid, time.monotonic())

    def end_wait(self, uid: int) -> float | None:
        """Return since when a request has waited for decode, which begins with it now; None if it has not."""
        return self._waiting.pop(uid, None)

    def states(self) -> list[DecodeState]:
        """Return what the scheduler sees of the sequences, by their turns."""
        return [
            DecodeState(s.ticket, s.index, len(s.token_ids), len(s.pages), self._kv.state_pages)
            for s in self._running.values()
        ]

    def rows(self, keys: list[Key]) -> list[tuple[Key, Rows]]:
        """Return the next token of each sequence as model input, less those for which no page could be had."""
        batch = []
        for key in keys:
            sequence = self._running[key]
            if self._grow(sequence):
                last = len(sequence.token_ids) - 1
                position = torch.full((self._model.adapter.position_rows, 1), last + sequence.position_offset)
                cross = [CrossSpan(0, 1, self._visual.numbers(sequence.visual))] if sequence.visual else []
                batch.append((key, Rows(sequence.token_ids[last:], position, last, sequence.pages, cross=cross)))
        return batch

    def finish(self, keys: list[Key], logits: Tensor) -> list[Token]:
        """Sample a token for each sequence; those that end release their pages."""
        sequences = [self._running[key] for key in keys]
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
        release_pages(self._running.pop(key), self._kv, self._visual)
        if not self._keys(key[0]):
            self._waiting.pop(key[0], None)

    def drop_request(self, uid: int, index: int | None = None) -> bool:
        """Drop the answers of a request, or one of them; return whether there were any."""
        keys = [key for key in self._keys(uid) if index in (None, key[1])]
        for key in keys:
            self.drop(key)
        return bool(keys)

    def _keys(self, uid: int) -> list[Key]:
        return [key for key in self._running if key[0] == uid]

    def _keep_full_pages(self, sequence: Generation) -> None:
        """Remember pages that the last step filled, for requests that begin with this answer's prompt and text."""
        size = self._kv.page_size
        while sequence.last_key and (sequence.keyed + 1) * size < len(sequence.token_ids):
            start = sequence.keyed * size
            tokens = sequence.token_ids[start : start + size]
            sequence.last_key = page_key(sequence.last_key, tokens, sequence.tail_media)
            self.log.keep(sequence.last_key, [sequence.pages[sequence.keyed]])
            sequence.tail_media = []
            sequence.keyed += 1

    def _grow(self, sequence: Generation) -> bool:
        missing = self._kv.pages_for(len(sequence.token_ids)) - len(sequence.pages)
        if missing > 0:
            pages = self._kv.pool.allocate(missing, sequence.ticket.uid, self._instance)
            if pages is None:
                return False
            sequence.pages.extend(pages.tolist())
        return True
