"""What a router is told of the nodes that it may send requests to."""

from collections.abc import Iterable

import msgspec


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A node that serves, or still ends what it has begun."""

    name: str  # unique in the cluster, and kept over restarts of the node
    pool: str
    url: str  # where its engine listens, such as http://10.0.0.7:41231
    draining: bool = False  # it takes no new requests


def write_members(members: Iterable[Member]) -> bytes:
    """Return a line of JSON with all members, as a router reads it from its standard input."""
    return msgspec.json.encode(list(members)) + b"\n"


def read_members(line: bytes) -> list[Member]:
    """Return the members of a line. Raises msgspec.DecodeError for one that holds none."""
    return msgspec.json.decode(line, type=list[Member])
