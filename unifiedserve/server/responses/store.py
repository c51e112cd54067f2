"""Store responses that clients may come back to.

They are bounded in bytes, number and age, and each is for the key it was made with.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.api import Delta
from unifiedserve.server.access.caller import Caller
from unifiedserve.server.responses.exchange import Exchange
from unifiedserve.server.responses.objects import ResponseObject
from unifiedserve.server.shelf import Bounds, Shelf

PREVIOUS = "previous_response_id"
_MOST = 4096  # responses


class ResponseStore:
    """Keep exchanges by the ids of their responses. Those that were not used for longest make room."""

    def __init__(self, config: EngineConfig) -> None:
        self._most_bytes = config.server.response_store_mib * MIB
        bounds = Bounds(_MOST, self._most_bytes, config.server.response_store_seconds)
        self._shelf = Shelf[Exchange]("response", "send the whole conversation as `input`", bounds)

    def fits(self, size: int) -> bool:
        """Tell whether an exchange of so many bytes can be stored."""
        return size < self._most_bytes

    def __contains__(self, id: str) -> bool:
        return id in self._shelf

    def answered(self, id: str, caller: Caller) -> Exchange:
        """Return a response's exchange; raise RequestError 404 if it is not there, or not answered yet."""
        exchange = self._shelf.get(id, caller)
        if exchange.response is None:
            raise RequestError(
                f"The response `{id}` is still being made: wait for its end.",
                ErrorKind.NOT_FOUND,
                code="response_not_found",
            )
        return exchange

    def earlier(self, id: str | None, caller: Caller) -> list[Exchange]:
        """Return the exchanges up to this response, the first one first.

        Raises RequestError 404 as `answered`, for any of them, and for a chain that leads back to itself: a response
        that began elsewhere may have the id of one that was deleted.
        """
        found: dict[str, Exchange] = {}
        try:
            while id is not None:
                if id in found:
                    raise _circular(id)
                found[id] = self.answered(id, caller)
                id = found[id].previous
        except RequestError as error:
            error.param = PREVIOUS
            raise
        return list(found.values())[::-1]

    def response(self, id: str, caller: Caller) -> bytes:
        """Return a response as JSON; raise RequestError 404 as `answered`."""
        return self.answered(id, caller).response or b""

    def delete(self, id: str, caller: Caller) -> None:
        """Forget a response; raise RequestError 404 if there is none."""
        self._shelf.remove(id, caller)

    def begin(self, id: str, exchange: Exchange, caller: Caller) -> None:
        """Keep an exchange whose answer begins."""
        self._shelf.put(id, exchange, exchange.size, caller)

    def finish(self, id: str, exchange: Exchange, caller: Caller, response: ResponseObject) -> None:
        """Keep the answer as well, unless the exchange made room or was deleted meanwhile."""
        if id not in self._shelf:
            return
        exchange.answer(response)
        if self.fits(exchange.size):
            self._shelf.put(id, exchange, exchange.size, caller)
        else:
            self._shelf.discard(id)

    async def watch(
        self, id: str, exchange: Exchange, deltas: AsyncGenerator[Delta, None]
    ) -> AsyncGenerator[Delta, None]:
        """Yield an answer; if it does not come to its end, its exchange is forgotten."""
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    yield delta
        finally:
            if exchange.response is None:
                self._shelf.discard(id)


def _circular(id: str) -> RequestError:
    return RequestError(
        f"The conversation of the response `{id}` leads back to itself: send the whole conversation as `input`.",
        ErrorKind.NOT_FOUND,
        code="response_not_found",
    )
