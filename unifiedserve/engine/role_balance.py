"""Have workers change what they host by themselves, where --roles auto asks for it."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.errors import RequestError
from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.scheduling.roles import LOOK_SECONDS, RoleBalance, work_left

_log = logging.getLogger(__name__)


def waiting_work(table: RequestTable, costs: Costs) -> dict[Stage, float]:
    """Return the seconds of work that is left in the stages of the model."""
    going = (active for active in table if active.begun and not active.ending)
    streams = [len(active.answers[index].token_ids) for active in going for index in active.unfinished]
    return work_left((load.left for load in table.loads()), streams, costs)


class RoleWatch:
    """Look at the work now and then. Belongs to the engine's event loop."""

    def __init__(
        self,
        balance: RoleBalance,
        placement: Callable[[], Placement | None],
        work: Callable[[], Mapping[Stage, float]],
        change: Callable[[Instance], None],
    ) -> None:
        """Have `balance` decide which worker is to `change`; `placement` is None while nobody can."""
        self._balance = balance
        self._placement = placement
        self._work = work
        self._change = change
        self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Stop looking."""
        self._task.cancel()

    def look(self, now: float) -> None:
        """Have a worker change, if one should at this time (monotonic seconds)."""
        if (placement := self._placement()) is None:
            return
        if wanted := self._balance.take(now, placement, self._work()):
            try:
                self._change(wanted)
            except RequestError as error:
                _log.warning("--roles auto: %s", error)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(time.monotonic())
