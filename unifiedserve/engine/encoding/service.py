"""Encode media of other nodes' prompts, and hold the visual tokens until they were read."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from unifiedserve.engine.encoding.intake import EncodeIntake
from unifiedserve.engine.requests.arrivals import Arrivals
from unifiedserve.engine.requests.lifecycle import Lifecycle
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.workers import Workers
from unifiedserve.errors import RequestError
from unifiedserve.messages.encoding import EncodedUnit, EncodeRequest

_BEAT_SECONDS = 2.0  # in which a waiting node hears that this one lives


class EncodeService:
    """Encode for other nodes. Belongs to the engine's event loop."""

    def __init__(self, intake: EncodeIntake, arrivals: Arrivals, lifecycle: Lifecycle, workers: Workers) -> None:
        self._intake = intake
        self._arrivals = arrivals
        self._lifecycle = lifecycle
        self._workers = workers

    async def encode(self, asked: EncodeRequest, data: Sequence[bytes]) -> AsyncGenerator[EncodedUnit | None, None]:
        """Yield where each wanted unit can be read, as they are encoded. None comes now and then, without an end.

        Closing it gives their pages back; those that the cache had nobody holds. Raises RequestError.
        """
        self._intake.check(asked)
        request = self._intake.request(asked, data)
        taking = asyncio.create_task(self._arrivals.take_encoding(request, partial(self._intake.take, asked, request)))
        try:
            while not (await asyncio.wait([taking], timeout=_BEAT_SECONDS))[0]:
                yield None
        except BaseException:
            taking.cancel()
            taking.add_done_callback(self._discard)
            raise
        active = taking.result()
        try:
            if not asked.anew:
                for unit in self._cached(active):
                    yield unit
            if active.to_encode:
                self._lifecycle.submit(active)
            while True:
                try:
                    async with asyncio.timeout(_BEAT_SECONDS):
                        item = await active.outputs.get()
                except TimeoutError:
                    yield None
                    continue
                if isinstance(item, RequestError):
                    raise item
                assert isinstance(item, EncodedUnit)
                yield item
        finally:
            self._lifecycle.end(active)

    def _discard(self, taking: asyncio.Task[ActiveRequest]) -> None:
        """Let go of what was taken in when nobody waited for it any more."""
        if not taking.cancelled() and taking.exception() is None:
            self._lifecycle.end(taking.result())

    def _cached(self, active: ActiveRequest) -> list[EncodedUnit]:
        """Return what the cache has, which is not to be encoded any more."""
        if active.contents is None or not active.to_encode:
            return []
        found = self._workers.caches.encoded(active.contents.unit_keys, active.to_encode)
        active.encode_less(found)
        return [EncodedUnit(unit, offer) for unit, offer in sorted(found.items())]
