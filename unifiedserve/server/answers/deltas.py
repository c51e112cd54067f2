"""Hold the engine's answer to one request, so that nothing keeps running."""

from collections.abc import AsyncGenerator, AsyncIterator

from unifiedserve.messages.api import Delta


class HeldDeltas:
    """Hold deltas, and await the first one apart. A failure can still be a proper HTTP status then."""

    def __init__(self, deltas: AsyncGenerator[Delta, None]) -> None:
        self._deltas = deltas
        self._first: Delta | None = None

    async def start(self) -> None:
        """Wait for the first delta; raises what the engine raises."""
        self._first = await anext(self._deltas, None)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        if self._first is not None:
            yield self._first
        async for delta in self._deltas:
            yield delta

    async def aclose(self) -> None:
        """Abort what has not been generated yet."""
        await self._deltas.aclose()
