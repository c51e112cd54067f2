"""What of the engine's work is told to those who watch it."""

from collections.abc import Mapping

from ipc_buffers import PagePool
from unifiedserve.active import ActiveRequest
from unifiedserve.contact_sheet import ContactSheet
from unifiedserve.live import Admitted, Live, Medium, Spans
from unifiedserve.messages import Report
from unifiedserve.tracing import Timeline


class Broadcast:
    """Belongs to the engine's event loop. Costs nothing while nobody watches."""

    def __init__(self, live: Live, timeline: Timeline) -> None:
        self._live = live
        self._timeline = timeline
        self._sheet: ContactSheet | None = None

    def show_frames_of(self, patches: PagePool, row_bytes: int) -> None:
        """From now on frames are read from this patch buffer."""
        self.close()
        self._sheet = ContactSheet(patches, row_bytes, self._live)

    def close(self) -> None:
        if self._sheet is not None:
            self._sheet.close()

    def watches(self, active: ActiveRequest) -> bool:
        """Whether somebody wants to see the request's frames."""
        return self._live.watches(active.admitted.request.viewer)

    def admitted(self, active: ActiveRequest) -> None:
        """A request was taken in."""
        admitted, viewer = active.admitted, active.admitted.request.viewer
        if viewer is None or not self.watches(active):
            return
        media = [
            Medium(plan.kind, max(1, len(plan.frame_indices)), plan.tokens, list(plan.frame_indices), seconds)
            for plan, seconds in zip(admitted.prompt.media, admitted.frame_seconds, strict=True)
        ]
        event = Admitted(
            request=admitted.request.id,
            arrival=self._timeline.microseconds(active.arrival),
            prompt_tokens=len(admitted.prompt.token_ids),
            media=media,
        )
        self._live.tell(viewer, event)

    def reported(self, report: Report, attempts: Mapping[int, ActiveRequest]) -> None:
        """Workers have done this; `attempts` are the requests in flight."""
        if report.spans and self._live.watched:
            self._live.tell_all(Spans(self._timeline.events(report.spans)))
        for decoded in report.decoded:
            active = attempts.get(decoded.uid)
            viewer = active.admitted.request.viewer if active is not None else None
            if active is not None and viewer is not None and self._sheet is not None:
                self._sheet.show(viewer, active.admitted.request.id, active.admitted.prompt.media, decoded)
