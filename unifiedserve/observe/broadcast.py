"""Tell viewers of an engine's work."""

from collections.abc import Mapping, Sequence

from ipc_buffers import PagePool
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.seen import SeenMedium
from unifiedserve.messages.wire import Span, WatchedUnits
from unifiedserve.observe.contact_sheet import ContactSheet
from unifiedserve.observe.live import Admitted, Live, Spans
from unifiedserve.observe.tracing import Timeline


class Broadcast:
    """Tell viewers of work, and of their own requests. Belongs to the event loop; free while nobody watches."""

    def __init__(self, live: Live, timeline: Timeline) -> None:
        self._live = live
        self._timeline = timeline
        self._sheet: ContactSheet | None = None

    def show_frames_of(self, patches: Mapping[str, PagePool], row_bytes: int) -> None:
        """Read frames from these patch buffers from now on; they go by the instances that encode from them."""
        self.close()
        self._sheet = ContactSheet(patches, row_bytes, self._live)

    def close(self) -> None:
        """Read no frames any more."""
        if self._sheet is not None:
            self._sheet.close()

    def watches(self, viewer: str | None) -> bool:
        """Return whether a viewer of this name is there and wants the request's frames."""
        return self._live.watches(viewer)

    def admitted(
        self, viewer: str | None, request: str, arrival: float, prompt_tokens: int, media: list[SeenMedium]
    ) -> None:
        """Tell that a request was taken in at `arrival` (monotonic seconds)."""
        if viewer is None or not self.watches(viewer):
            return
        event = Admitted(
            request=request,
            arrival=self._timeline.microseconds(arrival),
            prompt_tokens=prompt_tokens,
            media=media,
        )
        self._live.tell(viewer, event)

    def worked(self, spans: Sequence[Span]) -> None:
        """Tell what work has ended."""
        if spans and self._live.watched:
            self._live.tell_all(Spans(self._timeline.events(spans)))

    def decoded(
        self, viewer: str | None, request: str, media: Sequence[MediaPlan], units: WatchedUnits, encoder: str
    ) -> None:
        """Show the frames in these units of a request, where this `encoder` finds them."""
        if viewer is not None and self._sheet is not None:
            self._sheet.show(viewer, request, media, units, encoder)
