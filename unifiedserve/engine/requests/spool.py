"""The media of a request that came as bytes, in shared memory, where readers and workers find them."""

from collections import Counter
from collections.abc import Callable, Sequence

from ipc_buffers import Arena
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import MediaKind, Source

_COPY_BYTES = 1 << 20


class Spool:
    """Holds each medium once, however often the request has it, until it is closed."""

    def __init__(self, arena_name: Callable[[str], str], number: int) -> None:
        """Create one for request `number` of the engine, which makes the arenas' names."""
        self._arena_name = arena_name
        self._number = number
        self._arenas: list[Arena] = []
        self.bytes: Counter[MediaKind] = Counter()

    def take(self, media: Sequence[MediaInput]) -> None:
        """Move the bytes of media to shared memory. Raises ArenaError if there is too little."""
        spooled: dict[int, Source] = {}  # by the object that the bytes are
        for medium in media:
            if medium.data is not None:
                medium.spooled = spooled.get(id(medium.data)) or self._put(medium.kind, medium.data)
                spooled[id(medium.data)] = medium.spooled
        for medium in media:
            medium.data = medium.held = None  # only now: the ids above are those of living objects

    def close(self) -> None:
        """Remove the media from shared memory. Safe to call twice."""
        for arena in self._arenas:
            arena.close()
            arena.unlink()
        self._arenas.clear()

    def _put(self, kind: MediaKind, data: bytes) -> Source:
        arena = Arena.create(self._arena_name(f"media-{self._number}-{len(self._arenas)}"), len(data))
        self._arenas.append(arena)
        self.bytes[kind] += len(data)
        _copy(data, arena.buffer())
        return Source(arena=arena.name, size=len(data))


def _copy(data: bytes, buffer: memoryview) -> None:
    """Copy in pieces, so that other threads get their turns."""
    for start in range(0, len(data), _COPY_BYTES):
        piece = data[start : start + _COPY_BYTES]
        buffer[start : start + len(piece)] = piece
