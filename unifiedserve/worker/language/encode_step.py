"""The part of a step that encodes: what the cache has, and the rest, maybe beside other steps."""

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from unifiedserve.device.base import Mark, SideStream
from unifiedserve.messages.wire import Embeddings
from unifiedserve.placement import Stage
from unifiedserve.scheduling import EncodeWork
from unifiedserve.scheduling.turn import Batched, Note, Wrote
from unifiedserve.worker.language.encode import EncodedBatch, EncodeStage
from unifiedserve.worker.language.freed_pages import FreedPages
from unifiedserve.worker.language.prompt_table import PromptTable
from unifiedserve.worker.port import Port


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A batch that the device encodes, since a time (monotonic seconds)."""

    batch: EncodedBatch
    tokens: int
    started: float
    mark: Mark | None  # of the stream that it is in


class EncodeStep:
    """Runs the units of a plan and sends their visual tokens on to prefill."""

    def __init__(
        self,
        stage: EncodeStage,
        prompts: PromptTable,
        note: Note,
        freed: FreedPages,
        port: Port,
        stream: SideStream | None = None,
    ) -> None:
        """Encode in `stream`, beside other work, if there is one."""
        self._stage = stage
        self._prompts = prompts
        self._note = note
        self._freed = freed
        self._port = port
        self._stream = stream
        self._under_way: _UnderWay | None = None

    @property
    def beside(self) -> bool:
        """Tell whether batches are encoded beside other steps."""
        return self._stream is not None

    @property
    def uids(self) -> set[int]:
        """The requests of the batch that is under way; none if none is."""
        return {prompt.uid for prompt, _ in self._under_way.batch.units} if self._under_way else set()

    @property
    def done(self) -> bool:
        """Tell whether the batch under way is."""
        return self._under_way is not None and (self._under_way.mark is None or self._under_way.mark.done())

    def begin(self, scheduled: list[EncodeWork]) -> Iterator[None]:
        """Have units encoded, and yield before each layer of the encoder.

        `finish` is to be called before the next time.
        """
        if work := [each for each in scheduled if each.uid in self._prompts]:  # the others left after it was planned
            yield from self._begin(work)

    def finish(self) -> None:
        """Wait for the batch that is under way, if one is, send its tokens on, and note that there is none."""
        under_way, self._under_way = self._under_way, None
        tokens, start = (under_way.tokens, under_way.started) if under_way else (0, 0.0)
        try:
            if under_way:
                self._finish(under_way)
        finally:
            self._note(Batched(tokens, start, time.monotonic()))

    def _finish(self, under_way: _UnderWay) -> None:
        with self._stream.use() if self._stream else nullcontext():  # so that the fence is the stream's
            messages = self._stage.finish(under_way.batch)
        self._send(messages)
        self._freed.by_encode()
        uids = list(dict.fromkeys(prompt.uid for prompt, _ in under_way.batch.units))
        self._port.reporter.span(Stage.ENCODE, "encode", under_way.started, uids, under_way.tokens)
        self._drop_done(uids)

    def _send(self, embeddings: list[Embeddings]) -> None:
        for message in embeddings:
            route = self._prompts[message.uid].request.ticket.route
            self._note(Wrote(message.uid, message.unit))
            self._port.outbox.send(route.prefill, message)

    def _begin(self, work: list[EncodeWork]) -> Iterator[None]:
        start = time.monotonic()
        for uid, _ in work:
            self._port.reporter.waited(Stage.ENCODE, uid, self._prompts[uid].end_wait(Stage.ENCODE))
        tokens = sum(self._prompts[uid].shape.units[unit].tokens for uid, units in work for unit in units)
        with self._stream.use() if self._stream else nullcontext():
            batch = yield from self._stage.begin(work)
            self._under_way = _UnderWay(batch, tokens, start, self._stream.mark() if self._stream else None)

    def _drop_done(self, uids: Iterable[int]) -> None:
        for uid in uids:
            if uid in self._prompts:
                self._prompts.drop_if_done(uid)
