"""What caches found, and what stages did, for a request."""

from typing import Any

from completions import metric
from daemon import Daemon

from unifiedserve.placement import Stage

LONG = "The river rises in the hills and runs past many towns before it meets the sea. " * 6


class Hits:
    """What the caches found since the last time they were read."""

    NAMES = ("prefix_cache_queries_total", "prefix_cache_hits_total", "mm_cache_queries_total", "mm_cache_hits_total")

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._before = self._now()

    def _now(self) -> list[float]:
        return [metric(self._daemon, name) for name in self.NAMES]

    def take(self) -> dict[str, int]:
        before, self._before = self._before, self._now()
        names = ("queries", "hits", "visual queries", "visual hits")
        return {
            name: int(now - then) for name, now, then in zip(names, self._before, before, strict=True) if now != then
        }


def work(daemon: Daemon, completion: Any) -> dict[Stage, int]:
    """How often each stage did something for a request."""
    spans = [span for span in daemon.engine.observation.timeline(completion.id) if span.name != "queue"]
    return {stage: count for stage in Stage if (count := sum(span.stage == stage for span in spans))}
