"""Hold what an engine has once its workers are started."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unifiedserve.config import EngineConfig, required_cluster_key
from unifiedserve.engine.checkpoint import Checkpoint
from unifiedserve.engine.encoding.intake import EncodeIntake
from unifiedserve.engine.encoding.service import EncodeService
from unifiedserve.engine.health import Health
from unifiedserve.engine.requests.arrivals import Arrivals
from unifiedserve.engine.requests.dispatch import Dispatch
from unifiedserve.engine.requests.intake import Intake
from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.reports import Reports
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.requests.tokens import TokenFlow
from unifiedserve.engine.requests.worker_messages import WorkerMessages
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.standstill import Standstill
from unifiedserve.engine.watchdog import Watchdog
from unifiedserve.engine.workers import Workers
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.processor import Processor
from unifiedserve.observe.watching import Watching
from unifiedserve.reading.jobs import Setup
from unifiedserve.reading.readers import Readers
from unifiedserve.scheduling import Targets

if TYPE_CHECKING:
    from unifiedserve.engine.encoding.remotes import Remotes


@dataclass(frozen=True)
class Running:
    """Hold the parts of an engine that serves, made at once."""

    processor: Processor
    sampling_defaults: SamplingParams
    workers: Workers
    intake: Intake
    arrivals: Arrivals
    table: RequestTable
    targets: Targets
    lifecycle: Lifecycle
    reports: Reports
    messages: WorkerMessages
    encoding: EncodeService | None  # of a node that encodes for others
    remotes: "Remotes | None"  # of a node that does not encode itself
    watchdog: Watchdog
    standstill: Standstill

    async def stop(self) -> None:
        """End the workers, forget all requests and leave nothing behind."""
        self.watchdog.close()
        self.standstill.close()
        if self.remotes:
            await self.remotes.close()
        try:
            self.arrivals.close()
            await asyncio.to_thread(self.intake.close)
        finally:
            await self.workers.stop()
        self.lifecycle.release_all()


def assemble(
    config: EngineConfig,
    checkpoint: Checkpoint,
    workers: Workers,
    roles: Roles,
    health: Health,
    watching: Watching,
    on_release: Callable[[], None],
) -> Running:
    """Return the parts over workers that have been started; `on_release` is called when a request has ended."""
    placement, metrics, timeline, broadcast = (
        config.machine.workers,
        watching.metrics,
        watching.timeline,
        watching.broadcast,
    )
    processor = checkpoint.processor
    table = RequestTable(config.scheduling.max_running, on_release)
    targets = Targets(config)
    if workers.profile:
        targets.learn(workers.profile.costs.at_first())
    dispatch = Dispatch(roles, table, workers, targets, timeline, broadcast)
    lifecycle = Lifecycle(table, dispatch, metrics)
    reports = Reports(table, TokenFlow(table, lifecycle, dispatch, metrics), workers, targets, watching)
    reading = Readers(workers.nursery, Setup.of(config))
    intake = Intake(config, processor, workers.memory.layout, reading, workers.arena_name)
    arrivals = Arrivals(config, intake, table, targets, health, timeline, broadcast)
    remotes = None
    if placement.encoded_elsewhere:
        from unifiedserve.engine.encoding.asking import Asking  # with an HTTP client that is not needed otherwise
        from unifiedserve.engine.encoding.remotes import Remotes

        asking = Asking(workers.features, required_cluster_key(placement.name))
        remotes = Remotes(asking, table, lifecycle, workers)
    encoding = None
    if placement.encodes_for_others:
        taken = EncodeIntake(config, processor, workers.memory.layout, workers.features, workers.arena_name)
        encoding = EncodeService(taken, arrivals, lifecycle, workers)

    def note_hang() -> None:
        health.worker_lost()
        metrics.worker_hung()

    return Running(
        processor=processor,
        sampling_defaults=checkpoint.sampling,
        workers=workers,
        intake=intake,
        arrivals=arrivals,
        table=table,
        targets=targets,
        lifecycle=lifecycle,
        reports=reports,
        messages=WorkerMessages(placement, table, lifecycle, dispatch, reports, workers, remotes, metrics),
        encoding=encoding,
        remotes=remotes,
        watchdog=Watchdog(config.machine.worker_timeout, workers, health.is_up, note_hang),
        standstill=Standstill(config.machine.worker_timeout, table, reports, workers, lambda: roles.placement),
    )
