"""Tell viewers what happens in the engine, as it happens. They never make the engine wait."""

import asyncio
from collections import deque
from typing import Any

import msgspec

from unifiedserve.errors import SHUTTING_DOWN, ErrorKind, RequestError
from unifiedserve.messages.seen import SeenMedium

_MOST_VIEWERS = 64
_MOST_EVENTS = 512  # that wait for one viewer


class Admitted(msgspec.Struct, tag_field="type", tag="admitted", kw_only=True):
    """Tell that the viewer's own request was taken in. Its `arrival` is on the clock of `Spans`."""

    request: str
    arrival: float
    prompt_tokens: int
    media: list[SeenMedium]


class Spans(msgspec.Struct, tag_field="type", tag="spans"):
    """Work that has ended, of all requests: complete events in the trace's format, times in microseconds."""

    events: list[dict[str, Any]]


class Frame(msgspec.Struct):
    """Show a frame: `number` counts the medium's sampled frames from 0; `jpeg` is a small picture of it."""

    number: int
    jpeg: bytes


class Frames(msgspec.Struct, tag_field="type", tag="frames"):
    """Show frames of the viewer's own request that were just decoded. The medium has number `medium` from 0."""

    request: str
    medium: int
    frames: list[Frame]


class Dropped(msgspec.Struct, tag_field="type", tag="dropped"):
    """Count events that the viewer should have got here and lost. It read too slowly."""

    events: int


Event = Admitted | Spans | Frames | Dropped


class Viewer:
    """Hold the end of one viewer: a bounded queue that loses its oldest events when nobody reads it."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.closed = False
        self._events: deque[Event] = deque()
        self._dropped = 0
        self._changed = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event; the oldest is lost if there are too many."""
        if len(self._events) == _MOST_EVENTS:
            self._events.popleft()
            self._dropped += 1
        self._events.append(event)
        self._changed.set()

    def close(self) -> None:
        """End the viewer's stream after what it has not taken yet."""
        self.closed = True
        self._changed.set()

    async def take(self, timeout: float) -> list[Event]:
        """Return all that has come since the last time; waits for something up to `timeout` seconds."""
        if not self._events and not self.closed:
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                return []
        self._changed.clear()
        taken: list[Event] = [Dropped(self._dropped)] if self._dropped else []
        taken += self._events
        self._events.clear()
        self._dropped = 0
        return taken


class Live:
    """Hold the viewers of an engine. Belongs to the engine's event loop.

    Everybody sees the spans; a request's contents go only to viewers of the name that came with it, a secret of its
    sender.
    """

    def __init__(self) -> None:
        self._viewers: set[Viewer] = set()
        self._closed = False

    def join(self, name: str | None) -> Viewer:
        """Add a viewer. Raises RequestError (UNAVAILABLE) if too many watch already, or the server is about to stop."""
        if self._closed or len(self._viewers) >= _MOST_VIEWERS:
            reason = SHUTTING_DOWN if self._closed else f"{_MOST_VIEWERS} viewers watch already"
            raise RequestError(f"{reason}.", ErrorKind.UNAVAILABLE)
        viewer = Viewer(name)
        self._viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._viewers.discard(viewer)

    @property
    def watched(self) -> bool:
        """Tell whether anybody is there."""
        return bool(self._viewers)

    def watches(self, name: str | None) -> bool:
        """Return whether a viewer of this name is there."""
        return name is not None and any(viewer.name == name for viewer in self._viewers)

    def tell_all(self, event: Event) -> None:
        """Tell all viewers."""
        for viewer in self._viewers:
            viewer.put(event)

    def tell(self, name: str, event: Event) -> None:
        """Tell the viewers of this name."""
        for viewer in self._viewers:
            if viewer.name == name:
                viewer.put(event)

    def close(self) -> None:
        """End all viewers' streams, so that nobody waits for them."""
        self._closed = True
        for viewer in self._viewers:
            viewer.close()
