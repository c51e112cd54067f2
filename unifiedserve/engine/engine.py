"""Serve requests asynchronously: the API over the supervisor's workers.

It keeps every request until its last answer is complete, so that what is lost (pages given back in a
preemption, or a whole worker) is recomputed from the prompt and the tokens seen so far.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.engine.checkpoint import load_checkpoint
from unifiedserve.engine.health import Health
from unifiedserve.engine.loop_watch import LoopWatch
from unifiedserve.engine.observation import Observation
from unifiedserve.engine.recovery import Recovery
from unifiedserve.engine.role_balance import RoleWatch, waiting_work
from unifiedserve.engine.role_changes import RoleChanges
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.running import Running, assemble
from unifiedserve.engine.threads import in_thread, on_loop
from unifiedserve.engine.workers import WorkerEvents, Workers
from unifiedserve.errors import SHUTTING_DOWN, ConfigError, ErrorKind, RequestError
from unifiedserve.messages.api import Delta, GenerateRequest
from unifiedserve.messages.encoding import EncodedUnit, EncodeRequest, Features
from unifiedserve.messages.load import EngineLoad
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.seen import RequestPlan
from unifiedserve.messages.wire import Drained, Ended, Failed, Heard, Message, Ready, Unfit
from unifiedserve.models.default import DEFAULT_MODEL
from unifiedserve.models.processor import Processor
from unifiedserve.observe.live import Live
from unifiedserve.observe.metrics import Metrics
from unifiedserve.observe.start import begin_step
from unifiedserve.observe.watching import Watching
from unifiedserve.placement import letters_of
from unifiedserve.recording.folder import prepare_folder
from unifiedserve.scheduling.roles import RoleBalance

_log = logging.getLogger(__name__)
_RELEASE_SECONDS = 60.0  # after which a page that is still in use, with no request in flight, is held to be lost
_NURSERY_SECONDS = 1.0  # after the start: the first answers come before what media alone need


class Engine:
    """Serve one model. All methods belong to the event loop that `start` ran on."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self.live = Live()
        self._watching = Watching.of(self.metrics, self.live)
        self._health = Health(config)
        self.roles = Roles(config)
        self._running: Running | None = None
        self._changed = asyncio.Event()  # something was reported or released
        self._recovery = Recovery(
            self._health,
            self.roles,
            config.machine.startup_timeout,
            self.fail_all,
            self.metrics.workers_restarted,
            self._changed.set,
        )
        self._role_changes = RoleChanges(
            self.roles, self._health, self._watching.timeline, self.wait_for, self._changed.set
        )
        self._role_watch: RoleWatch | None = None
        self._loop_watch: LoopWatch | None = None
        self.observation = Observation(
            self._health, self.roles, self._watching.timeline, lambda: self._running, config.memory.kv_page_tokens
        )

    # The model

    @property
    def model_name(self) -> str:
        """Return the model's name in the API."""
        return self.config.checkpoint.served_model_name or self.config.checkpoint.model or DEFAULT_MODEL

    @property
    def processor(self) -> Processor:
        """Return the prompt and media side of the model."""
        return self._started.processor

    @property
    def sampling_defaults(self) -> SamplingParams:
        """Return what requests get that do not say how tokens are chosen."""
        return self._started.sampling_defaults

    @property
    def max_model_len(self) -> int:
        """Return the context length in tokens."""
        return self._started.intake.max_model_len

    # Start and stop

    @property
    def healthy(self) -> bool:
        """Tell whether all workers live."""
        return self._health.healthy

    async def start(self) -> None:
        """Load the model and start the workers; returns when all are ready. Raises ConfigError."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        self.metrics.bind(self.observation)

    async def stop(self) -> None:
        """End the workers, fail what is in flight and leave nothing behind."""
        self._health.worker_lost()
        if self._role_watch is not None:
            self._role_watch.close()
        if self._loop_watch is not None:
            self._loop_watch.close()
        self._role_changes.cancel()
        self.fail_all(SHUTTING_DOWN)
        if self._running is not None:
            await self._running.stop()
        self._recovery.cancel()
        if self.config.server.trace:
            Path(self.config.server.trace).write_text(json.dumps(self.observation.trace()))

    def fail_all(self, reason: str) -> None:
        """End every request in flight with this error (UNAVAILABLE), and all that come later."""
        self._health.end(reason)
        if self._running is not None:
            self._running.lifecycle.fail_all(reason)

    async def wait_ended(self) -> str:
        """Return why the engine serves nothing any more, once it does not."""
        return await self._health.wait_ended()

    # Requests

    def check_room(self) -> None:
        """Raise RequestError if no request can be taken in at the moment: BUSY with others, or UNAVAILABLE."""
        self._started.arrivals.check_room()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Yield the answers' pieces as they come. Raises RequestError, before the first one if the request is bad.

        Closing the iterator, or cancelling its awaiter, aborts the request and frees all it holds.
        """
        running = self._started
        self.metrics.request_arrived()
        if request.sampling.grammar is not None:
            running.workers.expect_grammar()  # as it is tried out now, which takes longer
        active = await running.arrivals.take(request)
        alarm = running.lifecycle.set_alarm(active, request.deadline)
        trace = self._watching.traces.begin(request, active.arrival, self.model_name)
        active.callers_trace = trace.caller
        try:
            running.lifecycle.submit(active)
            while not (active.complete and active.outputs.empty()):
                item = await active.outputs.get()
                assert not isinstance(item, EncodedUnit)
                trace.take(item)
                if isinstance(item, RequestError):
                    raise item
                yield item
        finally:
            if alarm is not None:
                alarm.cancel()
            running.lifecycle.end(active)
            trace.end()

    @property
    def features(self) -> Features:
        """Return what its visual tokens are, for other nodes to compare."""
        return self._started.workers.features

    async def encode(self, asked: EncodeRequest, data: Sequence[bytes]) -> AsyncGenerator[EncodedUnit | None, None]:
        """Yield where another node can read each unit that it wants. None comes now and then, without an end.

        `data` are the media's bytes. Raises RequestError. Closing the iterator gives the pages back.
        """
        encoding = self._started.encoding
        assert encoding  # the placement shows the caller whether there is one
        trace = self._watching.traces.begin_encoding(asked.id, self.model_name)
        try:
            async with contextlib.aclosing(encoding.encode(asked, data)) as units:
                async for unit in units:
                    yield unit
        except RequestError as error:
            trace.take(error)
            raise
        finally:
            trace.end()

    async def plan(self, request: GenerateRequest) -> RequestPlan:
        """Return what would be done for a request if it came now; computes nothing on the model.

        Raises RequestError as `generate` would before its first piece.
        """
        return await self._started.arrivals.plan(request)

    def load(self) -> EngineLoad:
        """Return how busy the engine is, for a choice among several."""
        pages = [pages for (_, buffer), pages in self.observation.buffers().items() if buffer == "kv"]
        total = sum(total for _, total in pages)
        free = total - sum(used for used, _ in pages)
        return msgspec.structs.replace(self._started.arrivals.load(), kv_free=free, kv_total=total)

    def change_role(self, instance: str, stages: str) -> None:
        """Begin to give a worker the stages with these letters, while the others serve.

        Raises RequestError if that cannot be.
        """
        self._role_changes.begin(self._started, instance, stages)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; it is looked at whenever something changes."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def wait_idle(self) -> None:
        """Return as soon as no request is in flight and all pages are free.

        Raises PoolError, saying what is wrong, if pages stay in use or a pool's books do not balance.
        """
        seen = self.observation
        await self.wait_for(lambda: not seen.in_flight)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self.wait_for(lambda: not seen.in_flight and not any(used for used, _ in seen.buffers().values()))
        seen.check_integrity()

    # Its parts

    @property
    def _started(self) -> Running:
        if self._running is None:
            raise RuntimeError("the engine has not been started")
        return self._running

    async def _start(self) -> None:
        self.config.check()
        if self.config.scheduling.record:
            prepare_folder(Path(self.config.scheduling.record))
        events = WorkerEvents(
            messages=on_loop(self._handle_all),
            exited=on_loop(self._worker_ended),
            link_failed=on_loop(self._recovery.give_up),
        )
        checkpoint = await in_thread(load_checkpoint, self.config)
        folder, processor = checkpoint.folder, checkpoint.processor
        workers = await Workers.start(self.config, folder, processor, self._watching.broadcast, events)
        self._running = assemble(
            self.config, checkpoint, workers, self.roles, self._health, self._watching, self._changed.set
        )
        await self._health.wait_decided(self.config.machine.startup_timeout)
        if self._health.fatal:
            raise ConfigError(self._health.fatal)
        self._recovery.begin_watch(workers)
        workers.nursery.start_in(_NURSERY_SECONDS)
        self._loop_watch = LoopWatch()
        if self.config.machine.roles == "auto":
            self._role_watch = self._watch_roles(self._running)

    def _watch_roles(self, running: Running) -> RoleWatch:
        return RoleWatch(
            RoleBalance(self.config.machine.workers),
            lambda: self.roles.settled if self.healthy else None,
            lambda: waiting_work(running.table, running.targets.costs),
            lambda wanted: self.change_role(wanted.name, letters_of(wanted.stages)),
        )

    def _worker_ended(self, instance: str, code: int, generation: int) -> None:
        self._recovery.begin(self._running, instance, code, generation)
        self._changed.set()

    def _handle_all(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                self._handle(message)
            except Exception:  # one message must not cost the others their turn
                _log.exception("could not handle %s", type(message).__name__)
        self._changed.set()

    def _handle(self, message: Message) -> None:
        match message:
            case Ready():
                self._worker_ready(message)
            case Unfit():
                self.fail_all(message.reason)
            case Ended(instance, code, generation):
                self._worker_ended(instance, code, generation)
            case Heard():
                self._recovery.heard(message)
            case Failed(uid, kind=ErrorKind.INTERNAL):
                drains = self._started.table.note_failed_step(uid)
                self._started.messages.handle(message)
                if not drains:
                    self._recovery.step_failed(self._started)
            case Drained(uid):
                failed = self._started.table.had_failed_step(uid)
                self._started.messages.handle(message)
                if failed:  # until now others could share pages that it has left
                    self._recovery.step_failed(self._started)
            case _:
                self._started.messages.handle(message)

    def _worker_ready(self, message: Ready) -> None:
        if self._health.hears_old_workers:
            return  # all are replaced
        if self._running and message.incarnation != self._running.workers.incarnation(message.instance):
            return  # it has died since
        begin_step(f"warming up the workers ({message.instance} is ready)")
        self._role_changes.worker_ready(message)
        self.roles.come_back(message.instance)
        try:
            self._health.worker_ready(message)
        except ConfigError as error:
            self.fail_all(str(error))
