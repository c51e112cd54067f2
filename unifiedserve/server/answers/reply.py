"""Define replies as all endpoints know them: made from deltas, whole or in chunks."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta
from unifiedserve.server.answers.tally import Usage


class WholeReply(Protocol):
    """Gather the answers to a request as they come."""

    def take(self, delta: Delta) -> Sequence[Any]:
        """Return the choices that a delta adds."""

    def keep(self, choices: Any) -> None:
        """Remember these choices for `completion`."""

    def completion(self) -> msgspec.Struct:
        """Return all that was kept, at the end."""


class GrowingReply(WholeReply, Protocol):
    """Gather them and give them in chunks, too, which hold choices."""

    def opening(self) -> Sequence[Any]:
        """Return the choices that a stream begins with."""

    def chunk(self, *choices: Any, usage: Usage | None = None) -> msgspec.Struct: ...
    def usage(self) -> Usage: ...


class NamedReply(WholeReply, Protocol):
    """Gather them and give them in events, too, which tell their types."""

    def begin(self) -> Sequence[dict[str, Any]]:
        """Return the events that a stream begins with."""

    def failure(self, error: RequestError) -> dict[str, Any]:
        """Return the last event of a stream that cannot go on."""
