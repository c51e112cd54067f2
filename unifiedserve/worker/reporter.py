"""Report to the engine what a worker's steps produced."""

import time
from collections.abc import Iterable

from unifiedserve.messages.costs import Costs
from unifiedserve.messages.wire import Kept, Lookup, Report, Span, Token, WatchedUnits
from unifiedserve.placement import Stage
from unifiedserve.worker.outbox import Outbox


class Reporter:
    """Gather tokens and spans into one report a step."""

    def __init__(self, instance: str, outbox: Outbox) -> None:
        self._instance = instance
        self._outbox = outbox
        self._address = ""
        self._report = Report(instance=instance)
        self._costs = Costs()

    def reads_at(self, address: str) -> None:
        """Report from now on where others can read what is kept here."""
        self._address = address

    def tokens(self, tokens: list[Token], through: Iterable[int] = ()) -> None:
        """Report samples, and requests at the ends of their prompts that want no tokens."""
        self._report.tokens.extend(tokens)
        self._report.through.extend(through)

    def cached(self, kept: list[Kept], lookups: list[Lookup]) -> None:
        """Report what the caches hold from now on, and what was found there."""
        if kept:
            self._report.kept.extend(kept)
            self._report.address = self._address
        self._report.lookups.extend(lookups)

    def decoded(self, decoded: WatchedUnits) -> None:
        """Report at once what was decoded of a watched request, before the answer."""
        self._report.decoded.append(decoded)
        self._send(self._report.counts)

    def learned(self, costs: Costs) -> None:
        """Report with the next step what work costs here."""
        if costs != self._costs:
            self._costs = self._report.costs = costs

    def span(self, stage: Stage, name: str, start: float, requests: list[int], tokens: int = 0) -> None:
        """Record work on so many tokens that began at `start` (monotonic seconds) and has ended now."""
        self.record(Span(stage, name, start, time.monotonic(), requests, tokens=tokens))

    def record(self, span: Span) -> None:
        """Record work on the timeline."""
        span.instance = self._instance
        self._report.spans.append(span)

    def waited(self, stage: Stage, uid: int, since: float | None) -> None:
        """Record that a request has waited for `stage`, from `since` (monotonic seconds; None: it has not) to now."""
        if since is not None:
            self.span(stage, "queue", since, [uid])

    def flush(self, counts: dict[Stage, tuple[int, int]]) -> None:
        """Send what was gathered, if anything happened since the last time."""
        report = self._report
        gathered = report.tokens or report.through or report.spans or report.kept or report.lookups
        if gathered or counts != report.counts:
            self._send(counts)

    def _send(self, counts: dict[Stage, tuple[int, int]]) -> None:
        self._report.counts = counts
        self._outbox.to_engine(self._report)
        self._report = Report(instance=self._instance, counts=counts)
