"""Decode: one token more for every running sequence, or several where what was drafted comes true."""

import time
from collections import Counter
from collections.abc import Collection, Iterable

import torch
from torch import Tensor

from unifiedserve.attention import CrossSpan
from unifiedserve.memory.content_keys import page_key
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.memory.sequence_tables import SequenceTable
from unifiedserve.messages.wire import Token
from unifiedserve.scheduling import DecodeState
from unifiedserve.scheduling.turn import Streamed
from unifiedserve.worker.cache_log import CacheLog
from unifiedserve.worker.language.decode_ahead import Collected, DecodeAhead
from unifiedserve.worker.language.held import Held
from unifiedserve.worker.language.model import LanguageModel, Rows
from unifiedserve.worker.language.sampler import Key, Sampler
from unifiedserve.worker.language.sequence import Sequence
from unifiedserve.worker.language.speculation import Speculation


class DecodeStage:
    """Own the running sequences' KV pages, and the visual pages that they still need."""

    def __init__(
        self,
        model: LanguageModel,
        visual: RowBuffer,
        instance: int,
        sampler: Sampler,
        speculation: Speculation,
        ahead: DecodeAhead | None = None,
        table: SequenceTable | None = None,
    ) -> None:
        """Decode by the model's steps or, where the device does that by itself, `ahead`.

        Where page tables alone are enough to go on after this worker's death, they are kept in a `table`.
        """
        self._table = table
        self.ahead = ahead
        self._speculation = speculation
        self._leaving: list[Sequence] = []  # which a step under way still writes to
        self._released = False
        self._model = model
        self._visual = visual
        self._kv = model.kv
        self._instance = instance
        self._sampler = sampler
        self._running: dict[Key, Sequence] = {}
        self._waiting: dict[int, float] = {}  # since when (monotonic seconds) requests wait for their first step
        self.log = CacheLog("kv", self._kv.pool)

    def __len__(self) -> int:
        return len(self._running)

    def held(self) -> list[Held]:
        """Return what the sequences hold, those included that leave after the steps under way."""
        return [sequence.held for sequence in [*self._running.values(), *self._leaving]]

    def accept(self, sequence: Sequence) -> None:
        """Take over a sequence and the pages that it holds."""
        if self._table and not (sequence.visual or self._kv.state_pages):
            self._table.enter(sequence.key, sequence.position_offset, sequence.pages)
        self._running[sequence.key] = sequence
        self._running = dict(sorted(self._running.items(), key=lambda item: (item[1].ticket.turn, item[1].index)))
        self._waiting.setdefault(sequence.ticket.uid, time.monotonic())

    def end_waits(self, keys: list[Key]) -> dict[int, float]:
        """Return since when requests have waited for decode, which begins with them now.

        Those that have not are not among them.
        """
        begun = {uid for uid, _ in keys} if self._waiting else set()
        return {uid: self._waiting.pop(uid) for uid in begun & self._waiting.keys()}

    def state(self, sequence: Sequence) -> DecodeState:
        """Return what the scheduler sees of a sequence that has come."""
        tokens, pages = len(sequence.token_ids), len(sequence.pages)
        return DecodeState(sequence.ticket, sequence.index, tokens, pages, self._kv.state_pages)

    def streamed(self, keys: Iterable[Key]) -> list[Streamed]:
        """Return how these are now, those that are still here."""
        return [self._streamed(self._running[key]) for key in keys if key in self._running]

    def rows(self, keys: list[Key], *, drafts: bool = False) -> list[tuple[Key, Rows]]:
        """Return the next token of each sequence as model input. Those for which no page could be had are left out.

        With `drafts` it is followed by what may come next: the step should be the sequences' alone.
        """
        running = [sequence for key in keys if (sequence := self._running.get(key))]
        sequences = [sequence for sequence in running if self._grow(sequence, len(sequence.token_ids))]
        drafted = self._speculation.draft(sequences) if drafts else [[] for _ in sequences]
        return [(s.key, self._rows(s, draft)) for s, draft in zip(sequences, drafted, strict=True)]

    def must_wait(self, keys: list[Key]) -> bool:
        """Tell whether steps under way must be collected before the next launch.

        Sequences that have left count for nothing.
        """
        running = self._running
        return self.ahead is not None and self.ahead.must_wait({key: running[key] for key in keys if key in running})

    def launch(self, keys: list[Key]) -> None:
        """Launch the next step of these sequences ahead. Those for which no page could be had are left out."""
        running, pending = self._running, self._pending
        planned = {key: running[key] for key in keys if key in running}
        sequences = {key: s for key, s in planned.items() if self._grow(s, len(s.token_ids) + (key in pending))}
        if self.ahead is not None and sequences:
            self.ahead.launch(sequences)

    def prepare(self) -> None:
        """Record between steps what the next ones need, where steps are launched ahead."""
        if self.ahead is not None:
            self.ahead.prepare()

    def collect(self) -> Collected:
        """Wait for the oldest step under way; sequences that end release their pages, if no later one uses them.

        Raises TypeError if steps are not launched ahead.
        """
        if self.ahead is None:
            raise TypeError("steps are not launched ahead")
        collected = self.ahead.collect(self._running)
        self._release_unused()
        self._ended(collected.sequences, collected.tokens)
        return collected

    def finish(self, batch: list[tuple[Key, Rows]], logits: Tensor) -> list[Token]:
        """Sample a token for each sequence, and further ones if its drafts allow; those that end release their pages.

        The logits are those after all tokens that `rows` has returned. Keys and values of what is not accepted are
        overwritten by the next steps.
        """
        drafts = {key: rows.token_ids[1:] for key, rows in batch}
        sequences = {key: self._running[key] for key in drafts}
        tokens = self._sampler.next_tokens(list(sequences.values()), logits, list(drafts.values()))
        came = Counter((token.uid, token.index) for token in tokens)
        for key, draft in drafts.items():
            self._speculation.learn(key, len(draft), came[key] - 1)
        self._ended(sequences, tokens)
        return tokens

    def drop(self, key: Key) -> None:
        """Forget a sequence and release its pages, once no step uses them."""
        self._sampler.forget(key)
        self._speculation.forget(key)
        if self._table:
            self._table.leave(key)
        self._leaving.append(self._running.pop(key))
        self._release_unused()
        if not self._keys(key[0]):
            self._waiting.pop(key[0], None)

    def drop_request(self, uid: int, index: int | None = None) -> bool:
        """Drop the answers of a request, or one of them; return whether there were any. Their pages are free then."""
        keys = [key for key in self._keys(uid) if index in (None, key[1])]
        for key in keys:
            self.drop(key)
        if self._leaving and self.ahead is not None:
            self.ahead.wait()
            self._release_leaving(self._leaving)
        return bool(keys)

    def give_up(self) -> list[Sequence]:
        """Forget all sequences, and return them with their pages. No step of theirs is under way."""
        sequences = list(self._running.values())
        for sequence in sequences:
            self._sampler.forget(sequence.key)
            self._speculation.forget(sequence.key)
            if self._table:
                self._table.leave(sequence.key)
        self._running, self._waiting = {}, {}
        return sequences

    def take_released(self) -> bool:
        """Tell whether pages have come free since this was last asked."""
        released, self._released = self._released, False
        return released

    @property
    def _pending(self) -> Collection[Key]:
        """Return the sequences whose next token is on its way."""
        return () if self.ahead is None else self.ahead.pending

    def _streamed(self, sequence: Sequence) -> Streamed:
        pending, limit = sequence.key in self._pending, sequence.sampling.max_tokens
        last = limit is not None and sequence.num_generated + pending >= limit
        return Streamed(sequence.key, len(sequence.token_ids) + pending, len(sequence.pages), rests=last)

    def _rows(self, sequence: Sequence, draft: list[int]) -> Rows:
        if not self._grow(sequence, len(sequence.token_ids) + len(draft)):
            draft = []
        last, count = len(sequence.token_ids) - 1, 1 + len(draft)
        positions = torch.arange(last, last + count) + sequence.position_offset
        return Rows(
            token_ids=[*sequence.token_ids[last:], *draft],
            positions=positions.expand(self._model.adapter.position_rows, -1),
            start=last,
            pages=sequence.pages,
            wanted=count,
            logits=count,
            cross=[CrossSpan(0, count, self._visual.numbers(sequence.visual))] if sequence.visual else [],
        )

    def _ended(self, sequences: dict[Key, Sequence], tokens: list[Token]) -> None:
        """See to what their tokens mean for sequences: pages that are full, answers that have ended."""
        for key, sequence in sequences.items():
            if sequence.last_key and key in self._running:
                self._keep_full_pages(sequence)
        for token in tokens:
            if token.finish:
                self.drop((token.uid, token.index))

    def _release_unused(self) -> None:
        ahead = self.ahead
        self._release_leaving([s for s in self._leaving if ahead is None or not ahead.uses(s.key)])

    def _release_leaving(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            sequence.release(self._kv, self._visual)
            self._released = True
        released = {sequence.key for sequence in sequences}
        self._leaving = [sequence for sequence in self._leaving if sequence.key not in released]

    def _keys(self, uid: int) -> list[Key]:
        return [key for key in self._running if key[0] == uid]

    def _keep_full_pages(self, sequence: Sequence) -> None:
        """Remember pages that the last step filled. Later requests may begin with this answer's prompt and text."""
        size = self._kv.page_size
        while (sequence.keyed + 1) * size < len(sequence.token_ids):
            start = sequence.keyed * size
            tokens = sequence.token_ids[start : start + size]
            sequence.last_key = page_key(sequence.last_key, tokens, sequence.tail_media)
            self.log.keep(sequence.last_key, [sequence.pages[sequence.keyed]])
            sequence.tail_media = []
            sequence.keyed += 1

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Give a sequence pages for so many tokens; tell whether it has them."""
        missing = self._kv.pages_for(tokens) - len(sequence.pages)
        if missing > 0:
            pages = self._kv.pool.allocate(missing, sequence.ticket.uid, self._instance)
            if pages is None:
                return False
            sequence.pages.extend(pages.tolist())
            if self._table:
                self._table.extend(sequence.key, pages.tolist())
        return True
