"""The vision lane: admits requests to the decoder engines, and passes finished patches on."""

import logging

from unifiedserve.errors import ErrorKind
from unifiedserve.messages.wire import Abort, Message, Span, VisionRequest
from unifiedserve.placement import Stage
from unifiedserve.scheduling import schedule_vision
from unifiedserve.scheduling.turn import Tells
from unifiedserve.worker.lane import AT_ONCE, ON_MESSAGE
from unifiedserve.worker.port import Port
from unifiedserve.worker.vision.medium import Output
from unifiedserve.worker.vision.stage import VisionStage

_log = logging.getLogger(__name__)


class VisionLane:
    """Never blocks on decoding: the stage's threads wake the worker when something is finished."""

    def __init__(self, stage: VisionStage, port: Port) -> None:
        self._stage = stage
        self._port = port

    def accept(self, message: Message) -> None:
        if isinstance(message, VisionRequest):
            self._stage.accept(message)

    def step(self) -> float:
        outputs = self._stage.take_outputs()
        for output in outputs:
            try:
                self._pass_on(output)
            except Exception as error:  # ends one request, never the worker
                _log.exception("could not pass on decoded media")
                self._fail(output.uid, f"internal error: {error}", ErrorKind.INTERNAL)
        self._port.reporter.learned(self._stage.costs)
        admitted = schedule_vision(self._stage.states(), self._stage.free_pages)
        for uid in admitted:
            self._port.reporter.waited(Stage.VISION, uid, self._stage.start(uid))
        decoding = [state.ticket.uid for state in self._stage.states() if state.admitted]
        self._port.neighbours.tell(Tells({Stage.VISION: bool(decoding)}))
        self._port.pulse.work_on(decoding)
        return AT_ONCE if outputs or admitted else ON_MESSAGE

    def _pass_on(self, output: Output) -> None:
        self._port.reporter.record(
            Span(
                Stage.VISION, "decode", output.started, output.ended, [output.uid], output.engine, on=output.decoded_on
            )
        )
        watched, route = self._stage.is_watched(output.uid), self._stage.route(output.uid)
        if output.error:
            self._fail(output.uid, output.error, output.kind, output.param)
        elif message := self._stage.write(output):
            self._port.used(Stage.VISION, self._stage.used_pages)
            if watched:
                self._port.reporter.decoded(self._stage.remember(message))
            self._port.outbox.send(route.encode, message)

    def _fail(self, uid: int, reason: str, kind: ErrorKind, param: str | None = None) -> None:
        self._port.outbox.fail([uid], reason, kind, param)
        self._stage.drop(uid)

    def drop(self, abort: Abort) -> None:
        if abort.stage is Stage.VISION and abort.index is None:
            self._stage.drop(abort.uid)

    def counts(self) -> dict[Stage, tuple[int, int]]:
        states = self._stage.states()
        running = sum(state.admitted for state in states)
        return {Stage.VISION: (running, len(states) - running)}

    def close(self) -> None:
        self._stage.close()
