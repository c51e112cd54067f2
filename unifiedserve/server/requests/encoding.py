"""Decode bodies of requests as clients encoded them: plain, or compressed."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator

from unifiedserve.errors import ErrorKind, RequestError

_BLOCK = 1 << 18  # bytes that are decompressed in a turn of the event loop
_GZIP_OR_ZLIB, _RAW = 47, -15  # window bits


async def decoded(body: AsyncIterable[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """Yield a body decoded, in small pieces.

    Raises RequestError: 415 for an unknown encoding, 400 for faulty data.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        async for piece in body:
            yield piece
        return
    if name not in ("gzip", "x-gzip", "deflate"):
        raise RequestError(
            f"The body is encoded as '{name[:64]}': send it as it is, or as gzip or deflate.", ErrorKind.CONTENT_TYPE
        )
    decompressor = _Decompressor(name)
    async for piece in body:
        for block in decompressor.blocks(piece):
            yield block
            await asyncio.sleep(0)
    decompressor.check_end()


class _Decompressor:
    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    def blocks(self, data: bytes) -> Iterator[bytes]:
        """Yield what more data holds."""
        block = b""
        while data or len(block) == _BLOCK:  # after a full one there may be more of the same data
            if self._stream.eof and data:  # a body may be several, one after the other
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            block = self._decompress(data)
            yield block
            data = self._stream.unconsumed_tail or self._stream.unused_data

    def check_end(self) -> None:
        """Raise RequestError 400 unless the body is complete."""
        if self._begun and not self._stream.eof:
            raise self._faulty("it ends too early")

    def _decompress(self, data: bytes) -> bytes:
        try:
            block = self._stream.decompress(data, _BLOCK)
        except zlib.error as error:
            if self._begun or self._name != "deflate":
                raise self._faulty(str(error)) from None
            self._stream = zlib.decompressobj(_RAW)  # as many clients understand the word
            self._begun = True
            return self._decompress(data)
        self._begun = True
        return block

    def _faulty(self, reason: str) -> RequestError:
        return RequestError(f"The body is not valid {self._name}: {reason}.", code="invalid_encoding")
