"""Encode as a part of a step: the cache's part, and the rest, maybe beside other steps."""

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from unifiedserve.device import Pending, SideQueue
from unifiedserve.messages.wire import Embeddings
from unifiedserve.models.encoder_layers import run_through
from unifiedserve.placement import Stage
from unifiedserve.scheduling import EncodeWork
from unifiedserve.scheduling.turn import Batched, Note, Wrote
from unifiedserve.worker.language.encode import EncodedBatch, EncodeStage
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.language.sender import Sender
from unifiedserve.worker.port import Port


class _Encoded(NamedTuple):
    """Hold a batch that was encoded within the step, as a `Pending`."""

    batch: EncodedBatch

    def done(self) -> bool:
        return True

    def wait(self) -> EncodedBatch:
        return self.batch


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """Hold a batch that is encoded for these requests, since a time (monotonic seconds)."""

    uids: list[int]
    tokens: int
    started: float
    batch: Pending[EncodedBatch]


class EncodeStep:
    """Run the units of a plan and send their visual tokens on to prefill."""

    def __init__(
        self,
        stage: EncodeStage,
        prompts: PromptTable,
        note: Note,
        freed: FreedPages,
        port: Port,
        sender: Sender,
        side: SideQueue | None = None,
    ) -> None:
        """Encode in `side`, beside other steps, if there is one."""
        self._stage = stage
        self._prompts = prompts
        self._note = note
        self._freed = freed
        self._port = port
        self._sender = sender
        self._side = side
        self._under_way: _UnderWay | None = None

    @property
    def beside(self) -> bool:
        """Tell whether batches are encoded beside other steps."""
        return self._side is not None

    @property
    def tells(self) -> bool:
        """Tell whether a message comes when a batch is done. Then nobody has to wait for it."""
        return self._side is not None and self._side.tells

    @property
    def uids(self) -> set[int]:
        """Return the requests of the batch that is under way; none if none is."""
        return set(self._under_way.uids) if self._under_way else set()

    @property
    def done(self) -> bool:
        """Tell whether the batch under way is."""
        return self._under_way is not None and self._under_way.batch.done()

    def begin(self, scheduled: list[EncodeWork]) -> Iterator[None]:
        """Have units encoded, and yield before each layer of the encoder.

        `finish` is to be called before the next time.
        """
        if work := [each for each in scheduled if each.uid in self._prompts]:  # the others left after it was planned
            yield from self._begin(work)

    def finish(self) -> None:
        """Wait for a batch under way, send its tokens on, and note its end."""
        under_way, self._under_way = self._under_way, None
        tokens, start = (under_way.tokens, under_way.started) if under_way else (0, 0.0)
        try:
            if under_way:
                self._finish(under_way)
        finally:
            self._note(Batched(tokens, start, time.monotonic()))

    def close(self) -> None:
        """End what encodes beside other steps, when it is done with its batch."""
        if self._side:
            self._side.close()

    def _finish(self, under_way: _UnderWay) -> None:
        with self._side.use() if self._side else nullcontext():  # so that the fence is the queue's
            encoded = self._stage.finish(under_way.batch.wait())
        self._send(encoded.units)
        for host, room in encoded.room:
            self._port.outbox.send(host, room)
        self._freed.by_encode()
        self._port.reporter.span(Stage.ENCODE, "encode", under_way.started, under_way.uids, under_way.tokens)
        self._drop_done(under_way.uids)

    def _send(self, embeddings: list[Embeddings]) -> None:
        for message in embeddings:
            route = self._prompts[message.uid].request.ticket.route
            self._note(Wrote(message.uid, message.unit))
            self._sender.send_unit(message, route.prefill)

    def _begin(self, work: list[EncodeWork]) -> Iterator[None]:
        start = time.monotonic()
        for uid, _ in work:
            self._port.reporter.waited(Stage.ENCODE, uid, self._prompts[uid].end_wait(Stage.ENCODE))
        tokens = sum(self._prompts[uid].shape.units[unit].tokens for uid, units in work for unit in units)
        layers, uids = self._stage.begin(work), [uid for uid, _ in work]
        batch: Pending[EncodedBatch]
        if self._side:  # until it is done, nobody else touches these prompts' patches of these units
            batch = self._side.start(partial(run_through, layers), self._port.outbox.bell.ring)
        else:
            batch = _Encoded((yield from layers))
        self._under_way = _UnderWay(uids, tokens, start, batch)

    def _drop_done(self, uids: Iterable[int]) -> None:
        for uid in uids:
            if uid in self._prompts:
                self._prompts.drop_if_done(uid)
