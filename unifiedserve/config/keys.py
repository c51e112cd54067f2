"""Read secrets from the environment: API keys, and the key that the nodes and routers of a cluster share."""

import hashlib
import os

from unifiedserve.environment import API_KEY, CLUSTER_KEY
from unifiedserve.errors import ConfigError

_SHORTEST = 16  # characters


def key_header() -> dict[str, str]:
    """Return the header that shows the key of `UNIFIEDSERVE_API_KEY`; none where that is not set.

    So engines are asked by others of their cluster. Requests of clients go on with their own keys.
    """
    key = os.environ.get(API_KEY)
    return {"Authorization": f"Bearer {key}"} if key else {}


def cluster_key() -> str:
    """Return the cluster's key, "" if there is none. Raises ConfigError for one that is too short."""
    key = os.environ.get(CLUSTER_KEY, "")
    if key and (len(key) < _SHORTEST or not key.isascii()):
        raise ConfigError(f"{CLUSTER_KEY}: the key has at least {_SHORTEST} characters, all of ASCII")
    return key


def required_cluster_key(placement: str) -> str:
    """Return the cluster's key, which a node with this placement needs. Raises ConfigError without one."""
    if key := cluster_key():
        return key
    raise ConfigError(
        f"--placement {placement} is for a node of a stage pool: set {CLUSTER_KEY}, the same for all nodes and routers"
    )


def carrier_token(key: str) -> str:
    """Return the token with which nodes that share a key read each other's pages: 64 hexadecimal digits."""
    return hashlib.sha256(b"pages\0" + key.encode()).hexdigest()
