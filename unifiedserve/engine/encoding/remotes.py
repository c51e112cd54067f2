"""Follow all that other nodes encode for this one's prompts."""

import time
from functools import partial

from unifiedserve.engine.encoding.asking import Asking
from unifiedserve.engine.encoding.remote import RemoteEncoding
from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.workers import Workers
from unifiedserve.errors import RequestError
from unifiedserve.messages.encoding import EncodedUnit
from unifiedserve.messages.pages import PageOffer
from unifiedserve.messages.wire import Embeddings, Released, Wanted
from unifiedserve.placement import ENGINE


class Remotes:
    """Ask other nodes for what workers want, and pass on what these offer. Belongs to the engine's event loop."""

    def __init__(self, asking: Asking, table: RequestTable, lifecycle: Lifecycle, workers: Workers) -> None:
        self._asking = asking
        self._table = table
        self._lifecycle = lifecycle
        self._workers = workers

    def begin(self, wanted: Wanted) -> None:
        """Have units encoded, if their attempt is not over."""
        active, route = self._table.serving(wanted.uid), self._table.route(wanted.uid)
        if active is None or route is None:
            return
        deliver = partial(self._deliver, route.prefill, wanted.uid)
        remote = RemoteEncoding(self._asking, active, deliver, partial(self._fail, active))
        self._table.encode_elsewhere(wanted.uid, remote)
        active.wanted_at = active.read_at = time.monotonic()
        remote.begin(wanted.units)

    def read(self, released: Released) -> None:
        """Note that a worker has read a unit."""
        if released.unit is not None and (remote := self._table.remote(released.uid)):
            remote.read(released.unit)
            if active := self._table.serving(released.uid):
                active.read_at = time.monotonic()

    async def close(self) -> None:
        """Break off all connections."""
        await self._asking.close()

    def _deliver(self, prefill: str, uid: int, encoded: EncodedUnit) -> None:
        offer = PageOffer(ENGINE, encoded.offer.address, visual=encoded.offer.visual)
        self._workers.send(prefill, Embeddings(uid=uid, unit=encoded.unit, pages=[], offer=offer))

    def _fail(self, active: ActiveRequest, error: RequestError) -> None:
        self._lifecycle.fail(active, error.message, error.kind, error.param)
