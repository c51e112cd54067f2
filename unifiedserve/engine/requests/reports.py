"""Read what the workers' steps have produced."""

import time
from collections.abc import Sequence

from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.requests.tokens import TokenFlow
from unifiedserve.engine.workers import Workers
from unifiedserve.messages.wire import Lookup, Report, Span, WatchedUnits
from unifiedserve.observe.watching import Watching
from unifiedserve.placement import Stage
from unifiedserve.scheduling import Targets


class Reports:
    """Pass the parts of each report to their receivers."""

    def __init__(
        self,
        table: RequestTable,
        tokens: TokenFlow,
        workers: Workers,
        targets: Targets,
        watching: Watching,
    ) -> None:
        self._counts: dict[str, dict[Stage, tuple[int, int]]] = {}  # by instance
        self.done = 0  # reports of work so far
        self._table = table
        self._tokens = tokens
        self._workers = workers
        self._targets = targets
        self._metrics = watching.metrics
        self._timeline = watching.timeline
        self._broadcast = watching.broadcast

    @property
    def stages(self) -> dict[Stage, tuple[int, int]]:
        """Return the requests running and waiting in each stage, over its instances, as told last."""
        found: dict[Stage, tuple[int, int]] = {}
        for counts in self._counts.values():
            for stage, (running, waiting) in counts.items():
                before = found.get(stage, (0, 0))
                found[stage] = before[0] + running, before[1] + waiting
        return found

    @property
    def workers(self) -> dict[tuple[str, Stage], tuple[int, int]]:
        """Return the same by instance and stage."""
        return {(name, stage): held for name, counts in self._counts.items() for stage, held in counts.items()}

    def take(self, report: Report) -> None:
        """Take all that is in a report."""
        self._counts[report.instance] = report.counts
        self.done += bool(report.spans or report.tokens or report.through)
        self._workers.caches.learn(report.instance, report.kept, report.address)
        if report.costs is not None:
            self._targets.learn(report.costs)
        self._count(report.lookups)
        self._time(report.spans)
        now = time.monotonic()
        for uid in report.through:
            self._tokens.finish_without(uid, now)
        for token in report.tokens:
            self._tokens.take(token, now)
        self._broadcast.worked(report.spans)
        self._show(report.decoded)

    def _count(self, lookups: Sequence[Lookup]) -> None:
        for lookup in lookups:
            self._metrics.looked_up(lookup.buffer, lookup.tokens, lookup.hits)
            active = self._table.find(lookup.uid)
            if active is not None and lookup.buffer == "kv" and not active.begun:
                active.cached_tokens = lookup.hits

    def _time(self, spans: Sequence[Span]) -> None:
        self._timeline.add(spans)
        for span in spans:
            seconds = span.end - span.start
            if span.bytes:
                self._metrics.pulled(span.stage.value, span.bytes, seconds)
                continue
            self._metrics.stage_time(span.stage.value, "queue" if span.name == "queue" else "run", seconds)
            if span.name != "queue":
                self._metrics.worked(span.instance, span.stage.value, seconds)
            if span.host:
                self._metrics.decode_host(span.host)
            if span.eager:
                self._metrics.decoded_eagerly()
            if span.drafted:
                self._metrics.speculated(span.drafted, span.accepted)

    def _show(self, decoded: Sequence[WatchedUnits]) -> None:
        for units in decoded:
            active, route = self._table.find(units.uid), self._table.route(units.uid)
            if active is not None and route is not None:
                media = active.planned.prompt.media
                self._broadcast.decoded(active.viewer, active.id, media, units, route.encode[0])
