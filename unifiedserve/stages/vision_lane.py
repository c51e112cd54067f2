"""The vision lane: admits requests to the decoder engines, and passes finished patches on."""

import logging

from unifiedserve.config import Stage
from unifiedserve.messages import DecodeMedia, Message, Span
from unifiedserve.scheduling import schedule_vision
from unifiedserve.stages.lane import AT_ONCE, ON_MESSAGE
from unifiedserve.stages.port import Port
from unifiedserve.stages.vision import Output, VisionStage

_log = logging.getLogger(__name__)


class VisionLane:
    """Never blocks on decoding: the stage's threads wake the worker when something is finished."""

    def __init__(self, stage: VisionStage, port: Port) -> None:
        self._stage = stage
        self._port = port

    def accept(self, message: Message) -> None:
        if isinstance(message, DecodeMedia):
            self._stage.accept(message)
            self._port.queued(Stage.VISION, message.uid)

    def step(self) -> float:
        outputs = self._stage.take_outputs()
        for output in outputs:
            try:
                self._pass_on(output)
            except Exception as error:  # ends one request, never the worker
                _log.exception("could not pass on decoded media")
                self._fail(output.uid, f"internal error: {error}", 500)
        admitted = schedule_vision(self._stage.states(), self._stage.free_pages)
        for uid in admitted:
            self._port.dequeued(Stage.VISION, uid)
            self._stage.start(uid)
        self._port.working(Stage.VISION, any(state.admitted for state in self._stage.states()))
        return AT_ONCE if outputs or admitted else ON_MESSAGE

    def _pass_on(self, output: Output) -> None:
        self._port.record(Span(Stage.VISION, "decode", output.started, output.ended, [output.uid], output.engine))
        watched = self._stage.is_watched(output.uid)
        if output.error:
            self._fail(output.uid, output.error, output.status)
        elif message := self._stage.write(output):
            self._port.used(Stage.VISION, self._stage.used_pages)
            if watched:
                self._port.decoded(self._stage.remember(message))
            self._port.send(Stage.ENCODE, message)

    def _fail(self, uid: int, reason: str, status: int) -> None:
        self._port.fail([uid], reason, status)
        self.drop(uid)

    def drop(self, uid: int, index: int | None = None) -> None:
        if index is None:
            self._port.forget(uid)
            self._stage.drop(uid)

    def counts(self) -> dict[Stage, tuple[int, int]]:
        states = self._stage.states()
        running = sum(state.admitted for state in states)
        return {Stage.VISION: (running, len(states) - running)}

    def close(self) -> None:
        self._stage.close()
