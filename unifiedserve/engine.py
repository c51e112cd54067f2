"""The engine: the asynchronous request API over the supervisor's workers.

It keeps every request until its last answer is complete, so that what is lost (pages given back in a
preemption, or a whole worker) is recomputed from the prompt and the tokens seen so far.
"""

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, get_args

from unifiedserve.active import ActiveRequest
from unifiedserve.broadcast import Broadcast
from unifiedserve.caches import Caches
from unifiedserve.config import EngineConfig, Stage
from unifiedserve.errors import ConfigError, RequestError
from unifiedserve.in_flight import InFlight
from unifiedserve.intake import Intake
from unifiedserve.link import Link
from unifiedserve.live import Live
from unifiedserve.messages import (
    CachedBuffer,
    Delta,
    GenerateRequest,
    Message,
    Ready,
    Span,
    Unfit,
)
from unifiedserve.metrics import Metrics
from unifiedserve.models.base import Processor
from unifiedserve.models.default import DEFAULT_CHECKPOINT, DEFAULT_MODEL
from unifiedserve.models.hub import resolve_model
from unifiedserve.models.registry import load_processor
from unifiedserve.supervisor import Supervisor
from unifiedserve.tracing import Timeline

_log = logging.getLogger(__name__)
_MOST_RESTARTS = 5  # within
_RESTART_SECONDS = 120.0


class Engine:
    """Serves one model. All methods belong to the event loop that `start` ran on."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self.live = Live()
        self.healthy = False
        self.target_between_tokens: float | None = None  # seconds; known when the workers are up
        self.processor: Processor
        self._timeline = Timeline(time.monotonic())
        self._broadcast = Broadcast(self.live, self._timeline)
        self._ready: set[str] = set()
        self._all_ready = asyncio.Event()
        self._changed = asyncio.Event()  # something was reported or released
        self._requests = InFlight(config, self.metrics, self._timeline, self._broadcast, self._changed.set)
        self._fatal: str | None = None
        self._admitting = 0
        self._lost_generation = -1
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS)
        self._restarting = asyncio.Lock()
        self._supervisor: Supervisor | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def model_name(self) -> str:
        """The model's name in the API."""
        return self.config.served_model_name or self.config.model or DEFAULT_MODEL

    @property
    def max_model_len(self) -> int:
        return self._intake.max_model_len

    async def start(self) -> None:
        """Load the model and start the workers; returns when all are ready. Raises ConfigError."""
        self._loop = asyncio.get_running_loop()
        loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            await asyncio.shield(loading)
            await self._wait_ready()
            if self._fatal:
                raise ConfigError(self._fatal)
        except BaseException:
            await asyncio.wait([loading])  # a thread cannot be cancelled
            await self.stop()
            raise
        self.metrics.bind(self)

    async def stop(self) -> None:
        """End the workers, fail what is in flight and leave nothing behind."""
        self.healthy = False
        self.fail_all("the server is shutting down")
        if self._supervisor is not None:
            async with self._restarting:
                await asyncio.to_thread(self._shut_down, self._supervisor)
        for task in self._tasks:
            task.cancel()
        self._requests.release_all()
        if self.config.trace:
            Path(self.config.trace).write_text(json.dumps(self.trace()))

    def fail_all(self, reason: str) -> None:
        """End every request in flight with this error (503), and all that come later."""
        self._fatal = self._fatal or reason
        self._all_ready.set()
        self._requests.fail_all(reason)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """The answers' pieces as they come. Raises RequestError, before the first piece if the request is bad.

        Closing the iterator, or cancelling whoever awaits it, aborts the request and frees all it holds.
        """
        self.metrics.request_arrived()
        active = await self._prepare(request)
        alarm = self._requests.set_alarm(active, request.deadline)
        try:
            self._requests.submit(active, active.unfinished)
            while not (active.complete and active.outputs.empty()):
                item = await active.outputs.get()
                if isinstance(item, RequestError):
                    raise item
                yield item
        finally:
            if alarm is not None:
                alarm.cancel()
            self._requests.end(active)

    def trace(self, request_id: str | None = None) -> dict[str, Any]:
        """Chrome/Perfetto trace JSON of the latest work, or of one request's."""
        return self._timeline.chrome_trace(request_id)

    def timeline(self, request_id: str) -> list[Span]:
        """The spans of one request, by start time."""
        return self._timeline.of(request_id)

    @property
    def in_flight(self) -> int:
        """Requests that have not ended, aborted ones that are still being drained included."""
        return len(self._requests)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns as soon as the condition holds; it is looked at whenever something changes."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def wait_idle(self) -> None:
        """Returns as soon as no request is in flight and all pages are free."""
        await self.wait_for(lambda: not self._requests and not any(used for used, _ in self.buffers().values()))

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Used and total pages of each buffer; empty while there are none."""
        if self._supervisor is None or not self.healthy:
            return {}
        pools = self._supervisor.memory.pools
        return {name: (pool.used_pages(), pool.num_pages) for name, pool in pools.items()}

    def cached(self) -> dict[str, int]:
        """The free pages of each buffer that hold what later requests may reuse."""
        if self._supervisor is None or not self.healthy:
            return {}
        pools = self._supervisor.memory.pools
        return {name: pools[name].remembered_pages() for name in get_args(CachedBuffer)}

    def peaks(self) -> dict[str, int]:
        """The most pages of each buffer that were in use at once since the workers started."""
        if self._supervisor is None or not self.healthy:
            return {}
        peak = self._supervisor.memory.status.peak
        return {
            "patch": peak(Stage.VISION),
            "visual": peak(Stage.ENCODE),
            "kv": max(peak(Stage.PREFILL), peak(Stage.DECODE)),
        }

    def stages(self) -> dict[str, tuple[int, int]]:
        """Requests running and waiting in each stage."""
        return {stage.value: counts for stage, counts in self._requests.stages.items()}

    def worker_pids(self) -> dict[str, int]:
        """Process ids of the workers, by instance."""
        return self._supervisor.pids() if self._supervisor is not None else {}

    # Start and stop

    async def _wait_ready(self) -> None:
        try:
            async with asyncio.timeout(self.config.startup_timeout):
                await self._all_ready.wait()
        except TimeoutError as error:
            waiting = {instance.name for instance in self.config.workers.instances} - self._ready
            raise ConfigError(
                f"workers {', '.join(sorted(waiting))} were not ready after {self.config.startup_timeout:g} s"
            ) from error

    def _load(self) -> None:
        model_dir = resolve_model(self.config.model) if self.config.model else DEFAULT_CHECKPOINT
        self.processor = load_processor(model_dir, self._chat_template())
        self._supervisor = Supervisor(self.config, model_dir, self.processor)
        self._supervisor.start(self._on_exit)
        self._intake = Intake(self.config, self.processor, self._supervisor)
        self._attach(self._supervisor)

    def _attach(self, supervisor: Supervisor) -> None:
        """To the supervisor's present memory; all that an earlier one held is lost."""
        pools = supervisor.memory.pools
        self._broadcast.show_frames_of(pools["patch"], self.processor.patch_row_bytes)
        self._link = Link(supervisor.memory, self._on_messages, self._on_link_failure)
        self._requests.attach(supervisor.memory, Caches(self.config, pools, self.processor), self._link)

    def _chat_template(self) -> str | None:
        if not self.config.chat_template:
            return None
        try:
            return Path(self.config.chat_template).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--chat-template {self.config.chat_template}: {error}") from error

    def _shut_down(self, supervisor: Supervisor) -> None:
        try:
            if hasattr(self, "_link"):
                self._link.close()
        finally:
            self._broadcast.close()
            if hasattr(self, "_intake"):
                self._intake.close()
            supervisor.stop()

    # Requests

    async def _prepare(self, request: GenerateRequest) -> ActiveRequest:
        self._check_alive()
        if len(self._requests) + self._admitting >= self.config.max_requests:
            raise RequestError(
                f"the server is busy with {self.config.max_requests} requests; try again later",
                status=503,
                type="server_error",
            )
        preparing = asyncio.ensure_future(asyncio.to_thread(self._intake.take, request, time.monotonic()))
        self._admitting += 1
        try:
            active = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            preparing.add_done_callback(_discard)
            raise
        finally:
            self._admitting -= 1
        self._requests.add(active)
        try:
            await self._all_ready.wait()
            self._check_alive()
        except BaseException:
            self._requests.release(active)
            raise
        self._broadcast.admitted(active)
        return active

    def _check_alive(self) -> None:
        if self._fatal:
            raise RequestError(self._fatal, status=503, type="server_error")

    # Messages from the workers

    def _on_messages(self, messages: list[Message]) -> None:
        self._loop.call_soon_threadsafe(self._handle_all, messages)

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
                self._handle_ready(message)
            case Unfit():
                self.fail_all(message.reason)
            case _:
                self._requests.handle(message)

    def _handle_ready(self, message: Ready) -> None:
        if message.decode_step is not None and not self._check_target(message.decode_step):
            return
        self._ready.add(message.instance)
        if len(self._ready) == len(self.config.workers.instances):
            self.healthy = True
            self._all_ready.set()

    def _check_target(self, decode_step: float) -> bool:
        """Whether streams can hold their target; a start with one that is out of reach fails."""
        target = self.config.seconds_between_tokens(decode_step)
        least = decode_step * (1 + self.config.rest_between_steps)
        if target < least and self.target_between_tokens is None:
            self.fail_all(
                f"--slo-tbt {self.config.slo_tbt:g} is out of reach: a decode step takes {decode_step * 1e3:.1f} ms "
                f"here with nothing beside it, so {math.ceil(least * 1e3)} is the least; without the option streams "
                "and videos share the cores about equally"
            )
            return False
        self.target_between_tokens = target
        return True

    # Recovery

    def _on_exit(self, instance: str, code: int, generation: int) -> None:
        self._loop.call_soon_threadsafe(self._begin_recovery, instance, code, generation)

    def _begin_recovery(self, instance: str, code: int, generation: int) -> None:
        if self._fatal or generation <= self._lost_generation:
            return  # the end has come, or another worker of it died before and all are being replaced
        self._lost_generation = generation
        self.healthy = False
        self._changed.set()
        if not self._all_ready.is_set() and generation == 0:
            self._give_up(f"worker {instance} ended with code {code} at start; its log is above")
        elif self._restarts_too_often():
            self._give_up(
                f"worker {instance} ended with code {code}, after {_MOST_RESTARTS} restarts in {_RESTART_SECONDS:g} s"
            )
        else:
            _log.warning("worker %s ended with code %d: restarting; no request is lost", instance, code)
            self._all_ready.clear()
            task = asyncio.create_task(self._recover())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _restarts_too_often(self) -> bool:
        now = time.monotonic()
        often = len(self._restarts) == _MOST_RESTARTS and now - self._restarts[0] < _RESTART_SECONDS
        self._restarts.append(now)
        return often

    async def _recover(self) -> None:
        """Restart the workers over fresh pools, then send every unfinished answer through again."""
        assert self._supervisor is not None
        lost = self._requests.workers_lost()
        self._ready.clear()
        try:
            async with self._restarting:
                await asyncio.to_thread(self._restart, self._supervisor)
                self._attach(self._supervisor)
            await self._wait_ready()
        except Exception as error:
            _log.exception("the restart failed")
            self._give_up(f"the workers could not be restarted: {error}")
        for active in lost:
            if active.ending or not self._fatal:
                self._requests.resume(active)

    def _restart(self, supervisor: Supervisor) -> None:
        self._link.close()
        supervisor.restart(self._on_exit)

    def _on_link_failure(self, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._give_up, reason)

    def _give_up(self, reason: str) -> None:
        _log.error("%s", reason)
        self.healthy = False
        self.fail_all(reason)


def _discard(preparing: "asyncio.Future[ActiveRequest]") -> None:
    """A request whose client left while it was being admitted."""
    if not preparing.cancelled() and preparing.exception() is None:
        preparing.result().close()
