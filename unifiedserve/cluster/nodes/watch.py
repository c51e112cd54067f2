"""Watch one node for the controller, however long that node takes to answer."""

import asyncio
import socket
import time

import msgspec

from unifiedserve.cluster.cluster_file import ROUTER
from unifiedserve.cluster.nodes.actors import Actors, NodeError, NodeName
from unifiedserve.cluster.nodes.load_watch import LoadWatch
from unifiedserve.cluster.nodes.reports import NodeReport, Phase
from unifiedserve.messages.load import LoadReport

_PAUSE = 0.25  # seconds between two reports
_SILENCE = 3.0  # seconds after which a node is lost


class Watch:
    """Ask a node again and again, and keep its last report."""

    def __init__(self, actors: Actors, actor: str) -> None:
        self._actors = actors
        self._actor = actor
        self._last: NodeReport | None = None
        self._heard = 0.0
        self._looks: LoadWatch | None = None  # at its engine
        self._task = asyncio.create_task(self._ask())

    @property
    def has_answered(self) -> bool:
        return self._last is not None

    @property
    def report(self) -> NodeReport:
        """Return what it told last; without an answer it waits, and after some seconds of silence it is lost."""
        if self._last is None:
            name, pool, revision = NodeName.of(self._actor)
            return NodeReport(name=name, pool=pool, revision=revision, phase=Phase.WAITING)
        if time.monotonic() - self._heard > _SILENCE:
            return msgspec.structs.replace(self._last, phase=Phase.LOST)
        if self._looks and self._looks.is_cut_off and self._last.phase is Phase.SERVING:
            reason = f"{self._last.url} does not answer {socket.gethostname()}: is there a firewall between them?"
            return msgspec.structs.replace(self._last, phase=Phase.CUT_OFF, reason=reason)
        return self._last

    @property
    def load(self) -> LoadReport | None:
        """Return what its engine told last of its load; None if that is nothing yet, or it serves no more."""
        return self._looks.load if self._looks else None

    def end(self) -> None:
        """Ask no more."""
        self._task.cancel()
        self._follow("")

    def _follow(self, url: str) -> None:
        """Look at the engine of this URL from now on; at none if it is empty."""
        if self._looks and self._looks.url != url:
            self._looks.end()
            self._looks = None
        if url and self._looks is None:
            self._looks = LoadWatch(url)

    async def _ask(self) -> None:
        while True:
            try:
                self._last = await self._actors.report(self._actor)
                self._heard = time.monotonic()
                self._follow(self._last.url if self._last.pool != ROUTER else "")
            except (NodeError, KeyError):
                pass  # Ray starts it again, or it is gone
            await asyncio.sleep(_PAUSE)
