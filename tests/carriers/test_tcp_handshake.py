"""How sides of the carrier `tcp` introduce themselves, whatever the other one sends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import page_wire as wire
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sides import SETTING, TOKEN

from unifiedserve.carriers.tcp_handshake import HandshakeError, Identity, Layout, meet_client, meet_server, parse_token

OWN = Identity(parse_token(TOKEN), wire.INCARNATION, Layout(SETTING.description, {"kv": (4096, 64)}))
GREETING = wire.GREETING.pack(wire.MAGIC, wire.VERSION, 0, bytes(16))
LINES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=40)
WORDS = st.text(st.characters(exclude_characters="\n ", exclude_categories=["Cs"]), min_size=1, max_size=20)
SIZES = st.integers(0, (1 << 64) - 1)


@given(st.builds(Layout, LINES, st.dictionaries(WORDS, st.tuples(SIZES, SIZES), max_size=5)))
def test_layouts_are_read_as_they_were_written(layout: Layout) -> None:
    assert Layout.decode(layout.encode()) == layout


@given(st.binary(max_size=100))
@example(b"x\nkv 1 2\nkv 3 4")
def test_whatever_is_no_layout_is_a_failure_of_the_other_side(text: bytes) -> None:
    with suppress(HandshakeError):
        Layout.decode(text)


def turned_away(said: bytes, meet: Callable[[socket.socket, Identity], Coroutine[Any, Any, object]]) -> bytes:
    """Return what a stranger is answered who says this and is not let in."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.sendall(said)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(HandshakeError):
            asyncio.run(meet(here, OWN))
        here.shutdown(socket.SHUT_WR)  # what is closed with bytes unread resets the connection
        return there.recv(1 << 16)


@settings(max_examples=50)
@given(st.sampled_from([b"", GREETING]), st.binary(max_size=120))
def test_no_client_comes_in_by_chance(begin: bytes, rest: bytes) -> None:
    """Nor does it learn anything of the server: neither a proof nor what its pages mean."""
    answered = turned_away(begin + rest, meet_client)
    assert answered[wire.GREETING.size :] in (b"", wire.INTRODUCTION.pack(bytes(32), 0, wire.WRONG_TOKEN, 0))


@settings(max_examples=50)
@given(st.sampled_from([b"", GREETING]), st.binary(max_size=120))
def test_no_server_is_read_from_by_chance(begin: bytes, rest: bytes) -> None:
    turned_away(begin + rest, meet_server)
