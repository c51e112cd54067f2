"""Keep what has killed workers away from them for some minutes."""

from hashlib import blake2b

import numpy as np
from cachetools import TTLCache

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.errors import ErrorKind, RequestError

_SECONDS = 600
_MOST = 1024  # of what is kept away
_DIGEST_BYTES = 16


class Quarantine:
    """Know culprits by the digests of their contents: a request, or the only medium of one."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        """Keep each away for so long."""
        self._minutes = seconds / 60
        self._culprits: TTLCache[bytes, None] = TTLCache(_MOST, seconds)

    def add(self, active: ActiveRequest) -> None:
        """Keep a request away, and its medium if the dead workers decoded or encoded it."""
        media = _media(active)
        self._culprits[_digest(active)] = None
        if active.suspect_media and len(media) == 1:
            self._culprits[media[0]] = None

    def check(self, active: ActiveRequest) -> None:
        """Raise RequestError (HARMFUL) for a request that is kept away."""
        if _digest(active) in self._culprits:
            raise self._error("this request")
        if any(medium in self._culprits for medium in _media(active)):
            raise self._error("a medium of this request")

    def _error(self, culprit: str) -> RequestError:
        reason = f"workers died while they worked on {culprit}: it is refused for {self._minutes:g} minutes"
        return RequestError(reason, ErrorKind.HARMFUL, code="harmful_request")


def _media(active: ActiveRequest) -> list[bytes]:
    """Return what the media are known by."""
    return active.contents.media.keys if active.contents else []


def _digest(active: ActiveRequest) -> bytes:
    """Return what the request is known by: its prompt's tokens, and its media."""
    digest = blake2b(np.asarray(active.planned.prompt.token_ids, np.uint32).tobytes(), digest_size=_DIGEST_BYTES)
    for medium in _media(active):
        digest.update(medium)
    return digest.digest()
