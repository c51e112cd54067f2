"""What the controller knows of one node, however long that node takes to answer."""

import asyncio
import time

import msgspec

from unifiedserve.cluster.nodes.actors import Actors, NodeError, NodeName
from unifiedserve.cluster.nodes.reports import NodeReport, Phase

_PAUSE = 0.25  # seconds between two reports
_SILENCE = 3.0  # seconds after which a node is lost


class Watch:
    """Asks a node again and again, and keeps its last report."""

    def __init__(self, actors: Actors, actor: str) -> None:
        self._actors = actors
        self._actor = actor
        self._last: NodeReport | None = None
        self._heard = 0.0
        self._task = asyncio.create_task(self._ask())

    @property
    def has_answered(self) -> bool:
        return self._last is not None

    @property
    def report(self) -> NodeReport:
        """What it told last; without an answer it waits, and after some seconds of silence it is lost."""
        if self._last is None:
            name, pool, revision = NodeName.of(self._actor)
            return NodeReport(name=name, pool=pool, revision=revision, phase=Phase.WAITING)
        if time.monotonic() - self._heard > _SILENCE:
            return msgspec.structs.replace(self._last, phase=Phase.LOST)
        return self._last

    def end(self) -> None:
        """Ask no more."""
        self._task.cancel()

    async def _ask(self) -> None:
        while True:
            try:
                self._last = await self._actors.report(self._actor)
                self._heard = time.monotonic()
            except (NodeError, KeyError):
                pass  # Ray starts it again, or it is gone
            await asyncio.sleep(_PAUSE)
