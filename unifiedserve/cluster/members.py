"""Tell a router of the nodes that it may send requests to."""

from collections.abc import Collection, Iterable

import msgspec


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a node that serves, or still ends what it has begun."""

    name: str  # unique in the cluster, and kept over restarts of the node
    pool: str
    url: str  # where its engine listens, such as http://10.0.0.7:41231
    draining: bool = False  # it takes no new requests


class Membership(msgspec.Struct, frozen=True):
    """List all members, and the pools that have none: they sleep until requests wait for them."""

    members: list[Member]
    asleep: list[str] = []


def write_membership(members: Iterable[Member], asleep: Collection[str] = ()) -> bytes:
    """Return a line of JSON, as a router reads it from its standard input."""
    return msgspec.json.encode(Membership(list(members), list(asleep))) + b"\n"


def read_membership(line: bytes) -> Membership:
    """Return the membership of a line. Raises msgspec.DecodeError for one that holds none."""
    return msgspec.json.decode(line, type=Membership)
