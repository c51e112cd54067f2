"""Bound the memory of media, by kind, from their request until the engine has them."""

import weakref
from collections import Counter

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.media import MediaKind

_A_REQUEST = 2  # times the largest medium: what those of one request may take
_TOGETHER = 4  # times the largest medium: what all of a kind may take
_RETRY_SECONDS = 5


def unbounded(size: int) -> None:
    """Allow any number of bytes."""


class MediaBudget:
    """Bound the media of all requests. Images and videos have a budget each, so that neither waits for the other's."""

    def __init__(self, config: EngineConfig) -> None:
        largest = config.media.max_media_mib * MIB
        self._of_a_request, self._of_a_kind = _A_REQUEST * largest, _TOGETHER * largest
        self._held: Counter[MediaKind] = Counter()

    def of_request(self) -> "RequestBudget":
        """Return the part that one request takes."""
        return RequestBudget(self)

    def take(self, kind: MediaKind, size: int, own: int) -> None:
        """Count so many bytes more of a request that holds `own` with them.

        Raises RequestError: 413 if that is more than a request may have, 429 if others hold the rest.
        """
        if own > self._of_a_request:
            raise RequestError(
                f"The request's media take more than {self._of_a_request >> 20} MiB together; "
                "send them in several requests.",
                ErrorKind.TOO_LARGE,
                code="request_too_large",
            )
        if self._held[kind] + size > self._of_a_kind:
            raise RequestError(
                f"The server holds {self._held[kind] >> 20} MiB of {kind}s of requests that came before; "
                "try again later.",
                ErrorKind.BUSY,
                code="too_many_bytes",
                retry_after=_RETRY_SECONDS,
            )
        self._held[kind] += size

    def give_back(self, held: Counter[MediaKind]) -> None:
        """Count bytes less, by kind."""
        self._held.subtract(held)
        held.clear()


class RequestBudget:
    """Count the media of one request, until it is closed or forgotten."""

    def __init__(self, budget: MediaBudget) -> None:
        self._budget = budget
        self._held: Counter[MediaKind] = Counter()
        self.close = weakref.finalize(self, budget.give_back, self._held)

    def take(self, kind: MediaKind, size: int) -> None:
        """Count so many bytes of a medium before they are in memory. Raises RequestError as `MediaBudget.take`."""
        self._budget.take(kind, size, self._held.total() + size)
        self._held[kind] += size
