"""Keep media that came as bytes in shared memory, where readers and workers find them."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate

from ipc_buffers import Arena
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import MediaKind, Source

_COPY_BYTES = 1 << 20


class Spool:
    """Hold each medium of a request once, in one arena, until it is closed. A request may have it often."""

    def __init__(self, arena_name: Callable[[str], str], number: int) -> None:
        """Create one for request `number` of the engine, which makes the arena's name."""
        self._name = arena_name(f"media-{number}")
        self._arena: Arena | None = None
        self.bytes: Counter[MediaKind] = Counter()

    def take(self, media: Sequence[MediaInput]) -> None:
        """Move the bytes of media to shared memory. Raises ArenaError if there is too little."""
        brought = {id(medium.data): (medium.kind, medium.data) for medium in media if medium.data is not None}
        if not brought:
            return
        ends = list(accumulate(len(data) for _, data in brought.values()))
        self._arena = Arena.create(self._name, ends[-1])
        spooled: dict[int, Source] = {}  # by the object that the bytes are, which lives
        for (key, (kind, data)), end in zip(brought.items(), ends, strict=True):
            spooled[key] = _put(data, self._arena, end - len(data))
            self.bytes[kind] += len(data)
        for medium in media:
            medium.spooled = spooled.get(id(medium.data))
            medium.data = medium.held = None

    def close(self) -> None:
        """Remove the media from shared memory. Safe to call twice."""
        if self._arena is not None:
            self._arena.close()
            self._arena.unlink()
            self._arena = None


def _put(data: bytes | bytearray, arena: Arena, start: int) -> Source:
    _copy(data, arena.buffer()[start : start + len(data)])
    return Source(arena=arena.name, size=len(data), start=start)


def _copy(data: bytes | bytearray, buffer: memoryview) -> None:
    """Copy in pieces, so that other threads get their turns."""
    for start in range(0, len(data), _COPY_BYTES):
        piece = data[start : start + _COPY_BYTES]
        buffer[start : start + len(piece)] = piece
