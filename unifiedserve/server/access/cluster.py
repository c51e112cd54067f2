"""Tell whether a caller belongs to the server's cluster."""

import hmac

from starlette.requests import Request

from unifiedserve.config import cluster_key
from unifiedserve.messages.encoding import KEY_HEADER


def has_cluster_key(request: Request) -> bool:
    """Tell whether a request shows the cluster's key; without one nobody does."""
    key = cluster_key()
    return bool(key) and hmac.compare_digest(request.headers.get(KEY_HEADER, "").encode(), key.encode())
