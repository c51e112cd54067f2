"""Make what downloads media, once a request needs it: imports and certificates take a tenth of a second."""

import asyncio
from typing import TYPE_CHECKING

from unifiedserve.config import MIB, EngineConfig

if TYPE_CHECKING:
    from unifiedserve.server.media.download import Downloader


class Downloads:
    """Hold the downloader of a server, if there is one yet. Belongs to an event loop."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._making = asyncio.Lock()
        self._downloader: Downloader | None = None

    async def downloader(self) -> "Downloader":
        """Return the downloader."""
        async with self._making:
            if self._downloader is None:
                self._downloader = await asyncio.to_thread(self._make)
            return self._downloader

    async def close(self) -> None:
        """Close it, if it was made."""
        if self._downloader is not None:
            await self._downloader.__aexit__(None, None, None)

    def _make(self) -> "Downloader":
        from unifiedserve.server.media.download import Downloader

        media = self._config.media
        return Downloader(
            max_bytes=media.max_media_mib * MIB,
            timeout=media.media_timeout,
            allow_private=media.allow_private_media,
            allowed_domains=media.allowed_media_domains,
        )
