"""The key with which routers and the controller ask engines for their load."""

import os

from unifiedserve.config import API_KEY


def key_header() -> dict[str, str]:
    """Return the header that shows the key of `UNIFIEDSERVE_API_KEY`; none where that is not set.

    Requests of clients go on with their own keys.
    """
    key = os.environ.get(API_KEY)
    return {"Authorization": f"Bearer {key}"} if key else {}
