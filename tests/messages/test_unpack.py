"""Bytes that are no message: `unpack` raises, whatever they are, in time and memory in proportion to them."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unifiedserve.errors import ErrorKind
from unifiedserve.messages.wire import Abort, Drained, Failed, Message, pack, unpack

MESSAGES = [Drained(1), Failed(2, "é" * 100, ErrorKind.INTERNAL)]
TAGS = [tag.__struct_config__.tag for tag in Message.__args__]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9) | st.integers(-9, 9), inner, max_size=4)
    ),
)


REFUSALS = (msgspec.DecodeError, UnicodeDecodeError)


def is_refused_or_whole(data: bytes) -> None:
    """Bytes are a message, which packs into one that is the same, or they are refused."""
    try:
        message = unpack(data)
    except REFUSALS:
        return
    assert pack(unpack(pack(message))) == pack(message)


@settings(max_examples=200)
@given(data=st.binary(max_size=300))
def test_no_bytes_do_harm(data: bytes) -> None:
    is_refused_or_whole(data)


@settings(max_examples=200)
@given(tag=st.sampled_from(TAGS), fields=st.dictionaries(st.text(max_size=12), VALUES, max_size=4))
def test_no_fields_do_harm(tag: str, fields: dict[str, object]) -> None:
    is_refused_or_whole(msgspec.msgpack.encode({"type": tag, **fields}))


@settings(max_examples=200)
@given(message=st.sampled_from(MESSAGES), data=st.data())
def test_no_damage_to_a_message_does_harm(message: Message, data: st.DataObject) -> None:
    packed = bytearray(pack(message))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    is_refused_or_whole(bytes(packed[: data.draw(st.integers(0, len(packed)))]))


# an array, a map, a text and bytes that say that they have four thousand million parts; nesting without end
@pytest.mark.parametrize(
    "data", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("before", [b"", b"\x81\xa4type", b"\x82\xa4type\xa7Drained\xa3uid"])
def test_lengths_that_lie_take_no_memory(data: bytes, before: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack(before + data)


@pytest.mark.parametrize("opened", [b"\x91", b"\x81\xa1a", b"\x81\xa4type\x91"])
def test_nesting_without_end_is_refused(opened: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        unpack(opened * 100_000)
    assert unpack(pack(Drained(3))) == Drained(3)


def test_every_message_has_a_tag_of_its_own() -> None:
    assert len(set(TAGS)) == len(TAGS)
    assert Abort.__struct_config__.tag in TAGS
