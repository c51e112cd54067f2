"""The engine: the asynchronous request API over the supervisor's workers.

It keeps every request until its last answer is complete, so that what is lost (pages given back in a
preemption, or a whole worker) is recomputed from the prompt and the tokens seen so far.
"""

import asyncio
import itertools
import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from unifiedserve.active import ActiveRequest
from unifiedserve.broadcast import Broadcast
from unifiedserve.caches import Caches
from unifiedserve.config import EngineConfig, Stage
from unifiedserve.errors import ConfigError, RequestError
from unifiedserve.intake import Intake
from unifiedserve.link import Link
from unifiedserve.live import Live
from unifiedserve.messages import (
    Abort,
    CachedBuffer,
    Delta,
    Drained,
    Failed,
    GenerateRequest,
    Lookup,
    Message,
    PagesFreed,
    Preempted,
    PromptLogprobs,
    PromptVector,
    Ready,
    Report,
    Span,
    Stale,
    Token,
    Unfit,
)
from unifiedserve.metrics import Metrics
from unifiedserve.models.base import Processor
from unifiedserve.models.default import DEFAULT_MODEL, default_checkpoint
from unifiedserve.models.hub import resolve_model
from unifiedserve.models.registry import load_processor
from unifiedserve.supervisor import Supervisor
from unifiedserve.tracing import Timeline

_log = logging.getLogger(__name__)
_MOST_CRASHES = 3  # of workers, while one request was in flight: then it is held to be the cause
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
        self._uids = itertools.count(1)
        self._attempts: dict[int, ActiveRequest] = {}
        self._active: set[ActiveRequest] = set()
        self._counts: dict[Stage, tuple[int, int]] = {}
        self._ready: set[str] = set()
        self._all_ready = asyncio.Event()
        self._changed = asyncio.Event()  # something was reported or released
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
        for active in list(self._active):
            self._release(active)
        if self.config.trace:
            Path(self.config.trace).write_text(json.dumps(self.trace()))

    def fail_all(self, reason: str) -> None:
        """End every request in flight with this error (503), and all that come later."""
        self._fatal = self._fatal or reason
        self._all_ready.set()
        for active in self._active:
            if not active.complete:
                active.outputs.put_nowait(RequestError(reason, status=503, type="server_error"))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """The answers' pieces as they come. Raises RequestError, before the first piece if the request is bad.

        Closing the iterator, or cancelling whoever awaits it, aborts the request and frees all it holds.
        """
        self.metrics.request_arrived()
        active = await self._prepare(request)
        alarm = self._set_alarm(active, request.deadline)
        try:
            self._submit(active, active.unfinished)
            while not (active.complete and active.outputs.empty()):
                item = await active.outputs.get()
                if isinstance(item, RequestError):
                    raise item
                yield item
        finally:
            if alarm is not None:
                alarm.cancel()
            self._end(active)

    def trace(self, request_id: str | None = None) -> dict[str, Any]:
        """Chrome/Perfetto trace JSON of the latest work, or of one request's."""
        return self._timeline.chrome_trace(request_id)

    def timeline(self, request_id: str) -> list[Span]:
        """The spans of one request, by start time."""
        return self._timeline.of(request_id)

    @property
    def in_flight(self) -> int:
        """Requests that have not ended, aborted ones that are still being drained included."""
        return len(self._active)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns as soon as the condition holds; it is looked at whenever something changes."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def wait_idle(self) -> None:
        """Returns as soon as no request is in flight and all pages are free."""
        await self.wait_for(lambda: not self._active and not any(used for used, _ in self.buffers().values()))

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
        return {stage.value: counts for stage, counts in self._counts.items()}

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
        model_dir = resolve_model(self.config.model) if self.config.model else default_checkpoint()
        self.processor = load_processor(model_dir, self._chat_template())
        self._supervisor = Supervisor(self.config, model_dir, self.processor)
        self._supervisor.start(self._on_exit)
        self._intake = Intake(self.config, self.processor, self._supervisor)
        self._attach(self._supervisor)

    def _attach(self, supervisor: Supervisor) -> None:
        """To the supervisor's present memory; all that an earlier one held is lost."""
        pools = supervisor.memory.pools
        self._caches = Caches(self.config, pools, self.processor)
        self._broadcast.show_frames_of(pools["patch"], self.processor.patch_row_bytes)
        self._link = Link(supervisor.memory, self._on_messages, self._on_link_failure)

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
        if len(self._active) + self._admitting >= self.config.max_requests:
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
        self._active.add(active)
        try:
            await self._all_ready.wait()
            self._check_alive()
        except BaseException:
            self._release(active)
            raise
        self._broadcast.admitted(active)
        return active

    def _check_alive(self) -> None:
        if self._fatal:
            raise RequestError(self._fatal, status=503, type="server_error")

    def _set_alarm(self, active: ActiveRequest, deadline: float | None) -> asyncio.TimerHandle | None:
        if deadline is None:
            return None

        def strike() -> None:
            if not active.complete and not active.ending:
                self._fail(active, f"the answer was not complete by its deadline of {deadline:g} s", 504)

        return self._loop.call_later(max(0.0, active.arrival + deadline - time.monotonic()), strike)

    def _submit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        """Send a new attempt at these answers through the stages.

        Answers that have tokens already each go on alone.
        """
        fresh = [index for index in indices if not active.answers[index].token_ids]
        begun = [[index] for index in indices if active.answers[index].token_ids]
        placement = self.config.workers
        for group in ([fresh] if fresh else []) + begun:
            uid = next(self._uids)
            request = active.language_request(uid, group, self._caches)
            for host in dict.fromkeys([placement.host(Stage.ENCODE), placement.host(Stage.PREFILL)]):
                self._link.send(host, request)
            active.attempts[uid] = set(group)
            self._attempts[uid] = active
            self._timeline.name(uid, active.admitted.request.id)
            watched = self.live.watches(active.admitted.request.viewer)
            if vision := active.vision_request(uid, request.reuse, watched=watched):
                self._link.send(placement.host(Stage.VISION), vision)

    def _resubmit(self, active: ActiveRequest, indices: Sequence[int]) -> None:
        try:
            self._submit(active, indices)
        except RequestError as error:
            self._fail(active, error.message, error.status)

    def _end(self, active: ActiveRequest) -> None:
        """The client has read everything, or has gone."""
        if active.ending:
            return
        active.ending = True
        if not active.complete:
            self.metrics.aborted()
        if not active.attempts:
            self._release(active)
        else:
            for uid in active.attempts:
                self._link.send(self.config.workers.instances[0].name, Abort(uid))

    def _release(self, active: ActiveRequest) -> None:
        active.close()
        self._active.discard(active)
        self._changed.set()
        for uid in active.attempts:
            self._attempts.pop(uid, None)

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
            case PromptLogprobs() | PromptVector():
                if message.uid in self._attempts:
                    self._attempts[message.uid].learn(message)
            case Report():
                self._handle_report(message)
            case Preempted():
                self._handle_preempted(message)
            case Stale():
                self._handle_stale(message)
            case Failed():
                self._handle_failed(message)
            case Drained():
                self._handle_drained(message)
            case Ready():
                self._handle_ready(message)
            case Unfit():
                self.fail_all(message.reason)

    def _handle_report(self, report: Report) -> None:
        self._counts.update(report.counts)
        self._caches.learn(report.kept)
        for lookup in report.lookups:
            self._handle_lookup(lookup)
        self._timeline.add(report.spans)
        for span in report.spans:
            seconds = span.end - span.start
            self.metrics.stage_time(span.stage.value, "queue" if span.name == "queue" else "run", seconds)
        now = time.monotonic()
        for uid in report.through:
            self._handle_through(uid, now)
        for token in report.tokens:
            active = self._attempts.get(token.uid)
            if active is not None and not active.ending:
                for next_token in active.in_order(token):
                    self._take_token(active, next_token, now)
        self._broadcast.reported(report, self._attempts)

    def _handle_lookup(self, lookup: Lookup) -> None:
        self.metrics.looked_up(lookup.buffer, lookup.tokens, lookup.hits)
        active = self._attempts.get(lookup.uid)
        if active is not None and lookup.buffer == "kv" and not active.last_token:
            active.cached_tokens = lookup.hits

    def _take_token(self, active: ActiveRequest, token: Token, now: float) -> None:
        try:
            self._handle_token(active, token, now)
        except Exception as error:
            _log.exception("could not handle a token")
            self._fail(active, f"internal error: {error}", 500)

    def _handle_token(self, active: ActiveRequest, token: Token, now: float) -> None:
        answer = active.answers[token.index]
        if answer.finished:
            return
        if token.error:
            self._fail(active, token.error, 400)
            return
        previous = active.last_token.get(token.index)
        if previous is None:
            self.metrics.first_token(now - active.arrival)
        else:
            self.metrics.token_gap(now - previous)
        active.last_token[token.index] = now
        delta = answer.push(token, active.cached_tokens)
        if answer.finished:
            if token.finish is None:  # a stop string: decode does not know
                self._link.send(self.config.workers.host(Stage.DECODE), Abort(token.uid, token.index))
            self._leave(active, token.uid, token.index)
        if delta is not None:
            self._put(active, delta, now)

    def _handle_through(self, uid: int, now: float) -> None:
        """A request that wants no tokens is at the end of its prompt."""
        active = self._attempts.get(uid)
        if active is None or active.ending:
            return
        for index in sorted(active.attempts[uid]):
            self._leave(active, uid, index)
            self._put(active, active.answers[index].end(index, active.pooled), now)

    def _put(self, active: ActiveRequest, delta: Delta, now: float) -> None:
        if delta.finish_reason:
            self.metrics.request_finished(
                delta.finish_reason, now - active.arrival, delta.prompt_tokens, delta.generated_tokens
            )
        active.outputs.put_nowait(delta)

    def _handle_preempted(self, message: Preempted) -> None:
        active = self._attempts.get(message.uid)
        if active is None or active.ending:
            return
        self.metrics.preempted()
        active.forget_early(message.index)
        self._leave(active, message.uid, message.index)
        if not active.answers[message.index].finished:
            self._resubmit(active, [message.index])

    def _handle_stale(self, message: Stale) -> None:
        """The attempt is drained, and what was in it goes through a new one in full."""
        active = self._attempts.get(message.uid)
        if active is None or active.ending or not active.attempts[message.uid]:
            return
        indices, active.attempts[message.uid] = active.attempts[message.uid], set()
        active.stale = True
        self._link.send(self.config.workers.instances[0].name, Abort(message.uid))
        self._resubmit(active, sorted(indices))

    def _handle_failed(self, message: Failed) -> None:
        active = self._attempts.get(message.uid)
        if active is not None and not active.ending:
            self._fail(active, message.message, message.status)

    def _fail(self, active: ActiveRequest, reason: str, status: int) -> None:
        """End one request with an error."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        active.outputs.put_nowait(RequestError(reason, status=status, type=kind))
        self._end(active)

    def _handle_drained(self, message: Drained) -> None:
        active = self._attempts.pop(message.uid, None)
        if active is None or self._supervisor is None:
            return
        if leaked := self._supervisor.memory.reclaim(message.uid):
            _log.error("request %d left %d pages behind", message.uid, leaked)
            for instance in self.config.workers.instances:
                self._link.send(instance.name, PagesFreed())
        active.attempts.pop(message.uid, None)
        if not active.attempts:
            self._release(active)

    def _leave(self, active: ActiveRequest, uid: int, index: int) -> None:
        """An answer is no longer in an attempt."""
        remaining = active.attempts.get(uid, set())
        remaining.discard(index)
        if not remaining:
            active.attempts.pop(uid, None)
            self._attempts.pop(uid, None)

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
        lost = [active for active in self._active if active.attempts]
        for active in lost:
            active.attempts.clear()
            active.early.clear()
            active.crashes += 1
        self._ready.clear()
        self._attempts.clear()
        try:
            async with self._restarting:
                await asyncio.to_thread(self._restart, self._supervisor)
                self._attach(self._supervisor)
            await self._wait_ready()
        except Exception as error:
            _log.exception("the restart failed")
            self._give_up(f"the workers could not be restarted: {error}")
        for active in lost:
            self._resume(active)

    def _resume(self, active: ActiveRequest) -> None:
        """Go on with a request whose workers were lost."""
        if active.ending:
            self._release(active)
        elif active.crashes >= _MOST_CRASHES and not active.complete:
            self._fail(active, f"workers died {active.crashes} times while they worked on this request", 500)
        elif not self._fatal:
            self._resubmit(active, active.unfinished)

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
