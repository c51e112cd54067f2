"""Run the vision lane: admit requests to the decoder engines, and pass finished patches on to encoders."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from unifiedserve.errors import ErrorKind
from unifiedserve.messages.wire import Abort, Message, Patches, Room, Span, Stale, VisionRequest
from unifiedserve.placement import Stage
from unifiedserve.scheduling.turn.vision import MediaCame, MediaLeft, MediaTook, VisionFacts, VisionTurn
from unifiedserve.worker.lane import AT_ONCE
from unifiedserve.worker.port import Port
from unifiedserve.worker.vision.medium import Output
from unifiedserve.worker.vision.stage import VisionStage

_log = logging.getLogger(__name__)


class VisionLane:
    """Run the lane without blocking on decoding: the stage's threads wake the worker when something is finished."""

    def __init__(self, stage: VisionStage, turn: VisionTurn, port: Port) -> None:
        self._stage = stage
        self._turn = turn
        self._port = port
        self._rolls: dict[int, None] = {}  # uids of those whose next units have pages now

    def accept(self, message: Message) -> None:
        if isinstance(message, VisionRequest):
            wanted = self._stage.accept(message)
            self._turn.note(MediaCame(message.ticket, *wanted, self._stage.memory(message.ticket.uid)))
        elif isinstance(message, Room):
            self._take_back(message)

    def step(self) -> float:
        for uid in self._rolls:
            with self._guard(uid):
                self._roll(uid)
        self._rolls.clear()
        outputs = self._stage.take_outputs()
        for output in outputs:
            if output.uid not in self._stage:
                continue  # another of its media has failed just now
            with self._guard(output.uid):
                self._pass_on(output)
        self._port.reporter.learned(self._stage.costs)
        decision = self._turn.take(self._facts())
        for uid, turn in decision.turns.items():
            self._stage.take_turn(uid, turn)
        for uid in decision.admit:
            self._let_in(uid, decision.turns[uid])
        self._port.tell(decision.tells)
        self._port.tell_first(decision.first)
        self._port.pulse.work_on(self._stage.decoding)
        return AT_ONCE if outputs or decision.admit else decision.wait_until

    def _facts(self) -> VisionFacts:
        return VisionFacts(time.monotonic(), self._stage.free, self._port.neighbours.first_of_vision())

    def _let_in(self, uid: int, turn: float) -> None:
        taken = self._stage.take_pages(uid)
        if taken == "stale":
            self._port.outbox.to_engine(Stale(uid))
            self._drop(uid)
        if taken != "taken":
            return
        self._turn.note(MediaTook(uid))
        route = self._stage.route(uid)
        for message in self._stage.recalled(uid):
            self._port.outbox.send(route.prefill, message)
        self._port.reporter.waited(Stage.VISION, uid, self._stage.start(uid, turn))
        memory = self._stage.memory(uid)
        with self._guard(uid):
            self._roll(uid)
        patch, visual = self._stage.used_pages(memory)
        self._port.used(Stage.VISION, patch, memory)
        self._port.used(Stage.ENCODE, visual, memory)

    def _take_back(self, message: Room) -> None:
        """Take pages of a window back; those of a request that was aborted are the engine's to reclaim."""
        if message.uid not in self._stage:
            return
        if self._stage.take_back(message):
            self._rolls[message.uid] = None
            return
        memory = self._stage.memory(message.uid)
        self._stage.ended(message.uid)
        self._port.outbox.tell_freed(Stage.VISION, memory)

    def _roll(self, uid: int) -> None:
        """Have the next units of a window decoded; if the last ones were in the cache, nothing more comes."""
        if uid not in self._stage:
            return
        route, memory = self._stage.route(uid), self._stage.memory(uid)
        for message in self._stage.roll(uid):
            self._port.outbox.send(route.prefill, message)
        if self._stage.ended(uid):
            self._turn.note(MediaLeft(uid))
            for encoder in route.encode:
                self._port.outbox.send(encoder, Patches(uid=uid, last=True))
            self._port.outbox.tell_freed(Stage.VISION, memory)

    def _pass_on(self, output: Output) -> None:
        self._port.reporter.record(
            Span(
                Stage.VISION, "decode", output.started, output.ended, [output.uid], output.engine, on=output.decoded_on
            )
        )
        stage, uid = self._stage, output.uid
        watched, route, memory = stage.is_watched(uid), stage.route(uid), stage.memory(uid)
        if output.error:
            self._fail(uid, output.error, output.kind, output.param)
        elif message := stage.write(output):
            if watched:
                self._port.reporter.decoded(self._stage.remember(message, memory))
            self._send(message, route.encode)
            stage.ended(uid)

    def _send(self, patches: Patches, encoders: tuple[str, ...]) -> None:
        """Send patches to the encoder with the least pending ones; behind the last ones tell the others that, too."""
        chosen = self._port.status.least_pending(encoders)
        self._port.status.give(self._port.instance, chosen, sum(map(len, patches.pages)))
        self._port.outbox.send(chosen, patches)
        if patches.last:
            self._turn.note(MediaLeft(patches.uid))
            for other in encoders:
                if other != chosen:
                    self._port.outbox.send(other, Patches(uid=patches.uid, last=True))

    @contextmanager
    def _guard(self, uid: int) -> Iterator[None]:
        """Let a defect end one request, never the worker."""
        try:
            yield
        except Exception as error:
            _log.exception("could not decode media, or pass them on")
            self._fail(uid, f"internal error: {error}", ErrorKind.INTERNAL)

    def _fail(self, uid: int, reason: str, kind: ErrorKind, param: str | None = None) -> None:
        self._port.outbox.fail([uid], reason, kind, param)
        self._drop(uid)

    def held(self, stage: Stage) -> dict[str, list[int]]:
        """Return nothing: nobody knows yet of the pages taken here, and recalled ones are sent on at once."""
        return {}

    def drop(self, abort: Abort) -> None:
        if abort.stage is Stage.VISION and abort.index is None:
            self._drop(abort.uid)

    def _drop(self, uid: int) -> None:
        self._turn.note(MediaLeft(uid))
        memory = self._stage.memory(uid) if uid in self._stage else None
        self._stage.drop(uid)
        if memory is not None:
            self._port.outbox.tell_freed(Stage.VISION, memory)

    def counts(self) -> dict[Stage, tuple[int, int]]:
        return {Stage.VISION: self._turn.counts()}

    def close(self) -> None:
        self._stage.close()
