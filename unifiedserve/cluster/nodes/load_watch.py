"""Watch an engine's load over HTTP, as routers ask for it. This shows which nodes can be reached, too."""

import asyncio
import contextlib
import time

import httpx
import msgspec

from unifiedserve.config import key_header
from unifiedserve.errors import NO_JSON
from unifiedserve.messages.load import LoadReport

_PERIOD = 0.5  # seconds between two looks
_PATIENCE = 5.0  # seconds of silence after which a node is cut off


class LoadWatch:
    """Look at one engine again and again, and keep what it told last. Made within an event loop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.load: LoadReport | None = None
        self._heard = time.monotonic()
        self._task = asyncio.create_task(self._look())

    @property
    def is_cut_off(self) -> bool:
        """Tell whether nothing has answered for some seconds."""
        return time.monotonic() - self._heard > _PATIENCE

    def end(self) -> None:
        """Look no more."""
        self._task.cancel()

    async def _look(self) -> None:
        async with httpx.AsyncClient(headers=key_header(), timeout=_PATIENCE, trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.HTTPError, *NO_JSON):
                    answer = await client.get(f"{self.url}/v1/load")
                    self._heard = time.monotonic()
                    if answer.is_success:
                        self.load = msgspec.json.decode(answer.content, type=LoadReport)
                await asyncio.sleep(_PERIOD)
