"""Show the state of an engine."""

from collections.abc import Callable
from typing import Any, get_args

from unifiedserve.engine.health import Health
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.running import Running
from unifiedserve.memory.shared import PoolKey, SharedMemory
from unifiedserve.messages.seen import SeenInstance
from unifiedserve.messages.wire import CachedBuffer, Span
from unifiedserve.observe.tracing import Timeline
from unifiedserve.placement import Stage


class Observation:
    """Show the state of an engine at any time. Nothing here changes it."""

    def __init__(
        self,
        health: Health,
        roles: Roles,
        timeline: Timeline,
        running: Callable[[], Running | None],
        page_tokens: int,
    ) -> None:
        """Look at an engine whose pages of the KV cache hold so many tokens each."""
        self.page_tokens = page_tokens
        self._health = health
        self._roles = roles
        self._timeline = timeline
        self._running = running

    @property
    def target_between_tokens(self) -> float | None:
        """Return seconds between the tokens of a stream beside heavy work; None until the workers are up."""
        return self._health.target_between_tokens

    def held(self) -> tuple[float, float] | None:
        """Return how streams are held: the share of heavy work, and the time between tokens.

        Heavy work gets that share of its budgets. The time is the 99th percentile, in seconds, for which that is so; 0
        if it is not known. None while there are no workers.
        """
        memory = self._memory()
        return memory.status.held if memory else None

    @property
    def in_flight(self) -> int:
        """Return requests that have not ended, aborted ones that are still being drained included."""
        running = self._running()
        return len(running.table) if running else 0

    @property
    def waiting(self) -> int:
        """Return requests that wait for their first token, or for a place in decode."""
        running = self._running()
        return running.table.waiting if running else 0

    def stages(self) -> dict[str, tuple[int, int]]:
        """Return the requests running and waiting in each stage."""
        running = self._running()
        return {stage.value: counts for stage, counts in running.reports.stages.items()} if running else {}

    def worker_requests(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the requests running and waiting by worker and stage."""
        running = self._running()
        held = running.reports.workers if running else {}
        return {(worker, stage.value): counts for (worker, stage), counts in held.items()}

    def buffers(self) -> dict[PoolKey, tuple[int, int]]:
        """Return the used and total pages by memory and buffer; empty while there are none."""
        memory = self._memory()
        return {key: (pool.used_pages(), pool.num_pages) for key, pool in memory.pools.items()} if memory else {}

    def cached(self) -> dict[PoolKey, int]:
        """Return the free pages that hold what later requests may reuse, by memory and buffer."""
        memory, cached = self._memory(), get_args(CachedBuffer)
        pools = memory.pools.items() if memory else ()
        return {key: pool.remembered_pages() for key, pool in pools if key[1] in cached}

    def instances(self) -> list[SeenInstance]:
        """Return the workers, what they host and whether they are about to host something else."""
        return self._roles.seen()

    def hosts(self) -> dict[str, int]:
        """Return how many workers host each stage."""
        return {stage.value: len(self._roles.placement.hosts(stage)) for stage in Stage}

    @property
    def role_changes(self) -> int:
        """Return how often a worker has begun to host other stages."""
        return self._roles.changes

    def memory(self) -> dict[str, int]:
        """Return the bytes taken of the computing device's memory, by use."""
        running = self._running()
        return running.workers.memory_uses if running else {}

    def peaks(self) -> dict[PoolKey, int]:
        """Return the most pages in use since the workers started, by memory and buffer."""
        memory = self._memory()
        if memory is None:
            return {}
        takers = {"patch": [Stage.VISION], "visual": [Stage.ENCODE], "kv": [Stage.PREFILL, Stage.DECODE]}
        return {
            (name, pool): max(memory.status.peak(stage, name) for stage in takers[pool]) for name, pool in memory.pools
        }

    def trace(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the Chrome/Perfetto trace JSON of the latest work, or of one request's."""
        return self._timeline.chrome_trace(request_id)

    def timeline(self, request_id: str) -> list[Span]:
        """Return the spans of one request, by start time."""
        return self._timeline.of(request_id)

    def worker_pids(self) -> dict[str, int]:
        """Return the process ids of the workers, by instance."""
        running = self._running()
        return running.workers.pids() if running else {}

    def silences(self) -> dict[str, float]:
        """Return for how many seconds each worker has shown no sign of life."""
        running = self._running()
        return running.watchdog.silences() if running else {}

    def worked_on(self, instance: str) -> set[int]:
        """Return the attempts that an instance works on."""
        memory = self._memory()
        return memory.pulses.worked_on(instance) if memory else set()

    def turns(self, instance: str) -> int:
        """Return how many turns an instance's worker has begun; one that comes round lives."""
        memory = self._memory()
        return memory.pulses.turns(instance) if memory else 0

    def check_integrity(self) -> None:
        """Raise PoolError, saying what is wrong, if an idle pool is damaged. No request may be in flight."""
        if memory := self._memory():
            memory.check_integrity()

    def _memory(self) -> SharedMemory | None:
        running = self._running()
        return running.workers.memory if running and self._health.has_pools else None
