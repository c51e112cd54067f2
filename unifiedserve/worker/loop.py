"""Loop in every worker process: receive, schedule, step, send.

A worker owns nothing that a successor could not pick up: pages are tagged in shared memory, and the engine keeps
the requests.
"""

import os
import socket
import time
from collections import Counter

from unifiedserve.device import Device, open_device
from unifiedserve.errors import ConfigError
from unifiedserve.heap import give_back, give_back_at_rest
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.messages.wire import Abort, Count, Forget, Message, Placed, Reborn, Shutdown, Unfit, unpack
from unifiedserve.observe.logs import log_of_worker
from unifiedserve.placement import Route
from unifiedserve.reading.jobs import Setup
from unifiedserve.reading.keeper import LentNursery
from unifiedserve.reading.readers import Readers, Reading
from unifiedserve.recording.log import Log
from unifiedserve.worker.assembly import begin_log, build_lanes
from unifiedserve.worker.confinement import confine
from unifiedserve.worker.lane import AT_ONCE, ON_MESSAGE, Lane
from unifiedserve.worker.port import Port
from unifiedserve.worker.ranks import Ranks, fork_ranks
from unifiedserve.worker.spec import WorkerSpec

_BEATS = 4  # in the time that a worker may be silent


class Worker:
    """Run the stages of one instance, with their connections."""

    def __init__(
        self,
        spec: WorkerSpec,
        device: Device,
        reading: Reading | None = None,
        log: Log | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """Attach, and build the lanes; images are read by `reading`, or in this process. Turns go to the `log`.

        `ranks` are the instance's others, if there are several.
        """
        self._memory = SharedMemory.attach(spec.layout, spec.attached)
        self._port = Port.connect(spec.placement, spec.instance, self._memory, device)
        self._beat = spec.config.machine.worker_timeout / _BEATS
        self._lanes: list[Lane] = []
        self._log = log
        self._ranks = ranks
        self._serving = True
        group = ranks.group if ranks else None
        try:
            self._lanes, ready = build_lanes(spec, device, self._memory, self._port, reading, log, group)
        except ConfigError as error:
            self._port.outbox.to_engine(Unfit(str(error)))  # and wait for the engine to end what else has been started
        else:
            self._port.outbox.to_engine(ready)

    def run(self) -> None:
        """Serve until told to shut down; come round now and then, too, when there is nothing to do."""
        wake = ON_MESSAGE
        while self._serving:
            wake = self.turn(min(max(0.0, wake - time.monotonic()), self._beat))

    def turn(self, timeout: float | None) -> float:
        """Take messages in, waiting up to `timeout` seconds (None: for ever) for the first one, and do one step.

        Returns the time (monotonic seconds) for the next one, `AT_ONCE` or `ON_MESSAGE`.
        """
        self._port.pulse.wait()
        received = self._port.outbox.receive(timeout)
        self._port.pulse.begin_turn()
        for data in received:
            message = unpack(data)
            if isinstance(message, Shutdown):
                self._serving = False
                return AT_ONCE
            match message:
                case Placed():
                    self._port.placed(message)
                case Reborn():
                    self._memory.follow(message.instance, message.incarnation)
                    self._port.reborn(message)
                case Forget():
                    self._forget(message)
                case Count():
                    self._count(message)
                case _:
                    self._accept(message)
        self._deliver()
        return self._step()

    def close(self) -> None:
        """Stop what runs beside the loop."""
        for lane in self._lanes:
            lane.close()
        if self._ranks:
            self._ranks.dismiss()
        if self._log:
            self._log.close()

    def _accept(self, message: Message) -> None:
        if not isinstance(message, Abort):
            for lane in self._lanes:
                lane.accept(message)
            return
        for lane in self._lanes:
            lane.drop(message)
        self._port.outbox.pass_on(message)

    def _forget(self, message: Forget) -> None:
        """Drop what ended with another worker."""
        for uid in message.uids:
            for lane in self._lanes:
                lane.drop(Abort(uid, Route(), stage=message.stage))
        self._port.outbox.forget(message.uids)
        self._port.outbox.heard(message.number)

    def _count(self, message: Count) -> None:
        """Count what is held of pages that several requests share."""
        pools, shared = self._memory.of(self._port.memory), dict[str, dict[int, int]]()
        for lane in self._lanes:
            for name, pages in lane.held(message.stage).items():
                if pages and (pool := pools.get(name)):
                    several = set(pool.shared()[0].tolist())
                    shared[name] = Counter(page for page in pages if page in several)
        self._port.outbox.heard(message.number, shared)

    def _deliver(self) -> bool:
        """Take in what the stages here have sent to each other; return whether there was anything."""
        delivered = False
        for message in self._port.outbox.take_local():
            self._accept(message)
            delivered = True
        return delivered

    def _step(self) -> float:
        wake = min((lane.step() for lane in self._lanes), default=ON_MESSAGE)
        if self._deliver():
            wake = AT_ONCE
        self._port.reporter.flush({stage: count for lane in self._lanes for stage, count in lane.counts().items()})
        return wake


def run(spec: WorkerSpec) -> None:
    """Run a worker in this process until it is told to shut down."""
    log_of_worker(spec.config.server.log_format, spec.instance.name)
    device = open_device(spec.device, spec.config)  # first: what is configured names cores of the other workers, too
    if spec.instance.cores:
        os.sched_setaffinity(0, spec.instance.cores)  # before libraries count the cores
    ranks = fork_ranks(spec, device)  # before there are threads, which would be missing in the others
    log = begin_log(spec)
    confine(spec)  # before torch starts threads: those there are already would not be
    device.sharing.enter(spec.instance, spec.config.machine.torch_threads)
    worker = Worker(spec, device, _reading(spec), log, ranks)
    give_back()  # what loading took; the engine has been told that it is ready
    give_back_at_rest()
    try:
        worker.run()
    finally:
        worker.close()


def _reading(spec: WorkerSpec) -> Reading | None:
    if spec.nursery is None:
        return None
    return Readers(LentNursery(socket.socket(fileno=spec.nursery)), Setup.of(spec.config))
