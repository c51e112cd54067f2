"""Define what a node that prefills exchanges with one that encodes for it.

They speak HTTP. A request is the length of its head (4 bytes, little-endian), the head as MessagePack, and the media's
bytes. The answer is lines of JSON, a unit or a failure each; empty ones show that the node lives. Everything that a
line tells of is held until the connection is closed.
"""

import struct
from collections.abc import Iterable
from itertools import accumulate

import msgspec

from unifiedserve.errors import ErrorKind
from unifiedserve.messages.layouts import decode_layout
from unifiedserve.messages.load import EncodeNode
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.pages import PageOffer
from unifiedserve.messages.wire import MediaSource

PATH = "/v1/encode"
KEY_HEADER = "x-cluster-key"
NODES_HEADER = "x-encode-nodes"  # by a router: URL and pending tokens of each, separated by commas
_LENGTH = struct.Struct("<I")


class HeadError(ValueError):
    """Signal a body that begins with no head, in one line."""


class Features(msgspec.Struct, frozen=True):
    """Describe what visual tokens are. Both sides must mean the same."""

    model: str  # a digest of the checkpoint's shapes
    version: str  # of unifiedserve
    dtype: str
    width: int  # numbers in a visual token
    page_tokens: int

    def difference(self, theirs: "Features") -> str:
        """Return the first fact in which two sides differ, with both values; "" if there is none."""
        for name in self.__struct_fields__:
            own, other = getattr(self, name), getattr(theirs, name)
            if own != other:
                return f"{name} is {own} here and {other} there"
        return ""


class EncodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for some units of a prompt's media: `sources`, whose bytes follow one after the other.

    `digests` are those of all media (none: nothing is to be cached). Units wanted `anew` are not to be looked for in
    the cache.
    """

    id: str
    features: Features
    token_ids: list[int]
    media: list[MediaPlan]
    sources: list[MediaSource]
    digests: list[bytes]
    priority: int = 0
    anew: bool = False

    @property
    def tokens(self) -> dict[int, int]:
        """Return the tokens of the wanted units, which are counted over the whole prompt."""
        wanted = [(source, unit) for source in self.sources for unit in source.wanted]
        return {source.first_unit + unit: source.plan.unit_tokens(unit) for source, unit in wanted}


class EncodedUnit(msgspec.Struct, frozen=True, tag=True):
    """Report a unit (counted over the whole prompt) whose visual tokens can be read."""

    unit: int
    offer: PageOffer


class EncodeFailure(msgspec.Struct, frozen=True, tag=True):
    """Report why no more units come. `param` is the client's field at fault, if there is one."""

    message: str
    kind: ErrorKind
    param: str | None = None


_heads = msgspec.msgpack.Decoder(EncodeRequest, dec_hook=decode_layout)
_lines: msgspec.json.Decoder[EncodedUnit | EncodeFailure] = msgspec.json.Decoder(EncodedUnit | EncodeFailure)


def pack_head(request: EncodeRequest) -> bytes:
    """Return what a request's body begins with."""
    head = msgspec.msgpack.encode(request)
    return _LENGTH.pack(len(head)) + head


def unpack(body: bytes | bytearray) -> tuple[EncodeRequest, list[bytes]]:
    """Return a request and its media's bytes. Raises HeadError."""
    try:
        (length,) = _LENGTH.unpack_from(body)
        start = _LENGTH.size + length
        request = _heads.decode(memoryview(body)[_LENGTH.size : start])
        ends = list(accumulate((source.where.size for source in request.sources), initial=start))[1:]
    except (struct.error, msgspec.DecodeError, KeyError, ValueError) as error:
        raise HeadError(f"no request to encode: {error}") from error
    if not ends or ends[-1] != len(body):
        raise HeadError(f"no request to encode: its media have {ends[-1] if ends else 0} bytes, of {len(body)}")
    parts = [(end - source.where.size, end) for source, end in zip(request.sources, ends, strict=True)]
    return request, [bytes(body[first:last]) for first, last in parts]


def line_of(told: EncodedUnit | EncodeFailure) -> bytes:
    """Return a line of an answer."""
    return msgspec.json.encode(told) + b"\n"


def read_line(line: str | bytes) -> EncodedUnit | EncodeFailure:
    """Return what a line tells. Raises msgspec.DecodeError."""
    return _lines.decode(line)


def write_nodes(nodes: Iterable[EncodeNode]) -> str:
    """Return nodes as a header's value."""
    return ",".join(f"{node.url} {node.pending}" for node in nodes)


def read_nodes(value: str) -> list[EncodeNode]:
    """Return the nodes in a header's value. Raises ValueError for what is none."""
    pairs = [each.strip().partition(" ") for each in value.split(",") if each.strip()]
    return [EncodeNode(url, int(pending)) for url, _, pending in pairs]
