"""Tell requests that may have killed workers from those that were beside them."""

from collections import deque
from collections.abc import Collection

from unifiedserve.engine.requests.record import ActiveRequest

_MOST_CRASHES = 3  # of workers that worked on a request, the last one on no other suspect: it is held to be the cause
_MOST_ALONE = 2  # of workers that worked on nothing else


class Suspects:
    """Count deaths against the requests at work. The worst suspects go on one at a time."""

    def __init__(self) -> None:
        self._on_trial: ActiveRequest | None = None
        self._held: deque[ActiveRequest] = deque()

    def blame(self, worked_on: Collection[ActiveRequest], *, media: bool = False) -> bool:
        """Count a death against what the dead worker worked on: against the one on trial alone, if it is among it.

        Return whether another death had been counted against a single one already. `media`: the worker decoded or
        encoded.
        """
        blamed = [self._on_trial] if self._on_trial in worked_on else list(worked_on)
        for active in blamed:
            if active is not None:
                active.crashes += 1
                active.crashes_alone += len(blamed) == 1
                active.suspect_media |= media
        return len(blamed) == 1 and blamed[0] is not None and blamed[0].crashes > 1

    def convicted(self, active: ActiveRequest) -> bool:
        """Tell whether a request is held to be the cause of the deaths."""
        return active.crashes >= _MOST_CRASHES or active.crashes_alone >= _MOST_ALONE

    def may_go(self, active: ActiveRequest) -> bool:
        """Tell whether a request may be sent to the workers now; else it is held until `next` returns it."""
        if active.crashes < _MOST_CRASHES - 1 or self._on_trial is active:
            return True
        if active in self._held:
            return False
        if self._on_trial is None:
            self._on_trial = active
            return True
        self._held.append(active)
        return False

    def end(self, active: ActiveRequest) -> None:
        """Forget a request that has ended."""
        if active in self._held:
            self._held.remove(active)
        if self._on_trial is active:
            self._on_trial = None

    def next(self) -> ActiveRequest | None:
        """Return the held request whose turn it is, if there is none on trial."""
        if self._on_trial is None and self._held:
            self._on_trial = self._held.popleft()
            return self._on_trial
        return None
