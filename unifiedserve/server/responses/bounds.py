"""Bound a conversation with all that it refers to: as large as one body."""

import asyncio
from collections.abc import Sequence

from unifiedserve.config import MIB
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.requests.json_size import JsonSize, json_size
from unifiedserve.server.requests.parse import check_size
from unifiedserve.server.responses.exchange import total

_LARGE = 1 << 16  # bytes of JSON whose parts take long to count


def check_bytes(size: int, most: int, param: str) -> None:
    """Raise RequestError 413 that names `param` for a conversation of more than `most` bytes."""
    if size > most:
        raise RequestError(
            f"The conversation takes more than {most / MIB:g} MiB with what is stored of it (see --max-body-mib): "
            "begin another one.",
            ErrorKind.TOO_LARGE,
            param=param,
            code="request_too_large",
        )


async def counted(data: bytes) -> JsonSize:
    """Return the parts of JSON; if it is large, they are counted beside the event loop."""
    return json_size(data) if len(data) <= _LARGE else await asyncio.to_thread(json_size, data)


def checked_names(parts: Sequence[JsonSize], context: int) -> int:
    """Return how many names all pieces have; raise RequestError 413 for more parts than a body may have."""
    together = total(parts)
    check_size(together, context)
    return together.names
