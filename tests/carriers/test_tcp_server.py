"""A server of pages and whoever comes to its port: strangers, liars, those who stall; friends are served meanwhile."""

from __future__ import annotations

import contextlib
import select
import socket
from dataclasses import replace

import numpy as np
import page_wire as wire
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_wire import ClientPeer
from sides import SETTING, MakeSide, Side

from ipc_buffers import Bell
from unifiedserve.carriers.choose import open_carrier
from unifiedserve.errors import ConfigError

QUICK = replace(SETTING, patience=1.0)  # which friends on a busy machine come again after


def serves(source: Side, make_side: MakeSide) -> bool:
    """Whether a side that has not been there before can read from it."""
    target = make_side("tcp")
    offer, into = source.fill("kv", 3), target.take("kv", 3)
    done = target.fetch(source.address, offer.into(into))
    source.pools["kv"].release(offer.pages)
    return done.error == "" and bool((target.bytes["kv"][into] == offer.contents).all())


def entered(address: str, text: bytes | None = None) -> ClientPeer:
    """Return a client of a source that is quick to turn away: it comes again until it is in."""
    while True:
        with contextlib.suppress(EOFError, ConnectionError):
            client = ClientPeer(address)
            client.greet()
            assert client.introduce(text=text) == wire.WELCOME
            return client


def hung_up(peer: wire.Peer) -> bool:
    """Wait until the other side has ended the connection, without reading."""
    poll = select.poll()
    poll.register(peer.socket, select.POLLRDHUP)
    return bool(poll.poll())


def test_a_client_that_was_written_from_the_description(make_side: MakeSide) -> None:
    source = make_side("tcp")
    offer = source.fill("kv", 3)
    client = ClientPeer(source.address).enter()
    client.send(wire.request(9, 0, offer.pages, offer.epochs))
    assert client.frame() == (9, wire.PAGES, offer.contents.tobytes())
    assert client.frame() == (9, wire.END, b"")


def test_requests_are_answered_in_their_order_however_many(make_side: MakeSide) -> None:
    source = make_side("tcp")
    offer = source.fill("kv", 1)
    client = ClientPeer(source.address).enter()
    client.send(b"".join(wire.request(number, 0, offer.pages, offer.epochs) for number in range(1, 301)))
    for number in range(1, 301):
        assert client.frame() == (number, wire.PAGES, offer.contents.tobytes())
        assert client.frame() == (number, wire.END, b"")


def test_what_is_forgotten_is_not_sent(make_side: MakeSide) -> None:
    sizes = {"kv": (64, 1 << 20)}
    source = make_side("tcp", sizes=sizes)
    offer = source.fill("kv", 64)
    client = ClientPeer(source.address)
    client.greet()
    assert client.introduce(text=f"{SETTING.description}\nkv {1 << 20} 64\n".encode()) == wire.WELCOME
    client.send(wire.request(1, 0, offer.pages, offer.epochs))  # more than the system takes at once
    client.send(wire.request(2, 0, offer.pages, offer.epochs) + wire.request(3, 0, offer.pages[:1], offer.epochs[:1]))
    client.send(wire.REQUEST.pack(2, wire.FORGET, 0) + wire.REQUEST.pack(1, wire.FORGET, 0))
    client.send(wire.REQUEST.pack(77, wire.FORGET, 0))  # what never was
    numbers = []
    while numbers[-1:] != [3]:
        numbers.append(client.frame()[0])
    assert 2 not in numbers
    assert numbers.count(1) < 64
    assert client.frame() == (3, wire.END, b"")


STRANGERS = {
    "garbage": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "zeros": bytes(64),
    "almost": wire.GREETING.pack(b"pagesouT", wire.VERSION, 0, bytes(16)),
    "another version": wire.GREETING.pack(wire.MAGIC, 7, 0, bytes(16)),
    "no introduction": wire.GREETING.pack(wire.MAGIC, wire.VERSION, 0, bytes(16)) + bytes(48),
    "a letter": b"G",
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_strangers_are_turned_away_at_once(stranger: str, make_side: MakeSide) -> None:
    source = make_side("tcp")
    peer = wire.Peer(ClientPeer(source.address).socket)
    peer.send(STRANGERS[stranger])
    assert peer.is_left()
    assert serves(source, make_side)


def test_another_version_is_named(make_side: MakeSide) -> None:
    source = make_side("tcp")
    assert ClientPeer(source.address).greet(version=2) == (wire.MAGIC, wire.VERSION)


def test_who_is_turned_away_is_told(make_side: MakeSide, caplog: pytest.LogCaptureFixture) -> None:
    source = make_side("tcp")
    client = ClientPeer(source.address)
    client.greet()
    assert client.introduce(token="11" * 32) == wire.WRONG_TOKEN
    assert client.is_left()
    source.poll()
    told = f"turned away 127.0.0.1 port {client.socket.getsockname()[1]} does not have the token"
    assert caplog.messages == [f"the server of pages {told}"]


def test_a_proof_is_of_no_use_twice(make_side: MakeSide) -> None:
    """What was heard of an introduction opens no other connection."""
    source = make_side("tcp")
    first, second = ClientPeer(source.address), ClientPeer(source.address)
    first.greet()
    second.greet()
    stolen = wire.proof(SETTING.token, "client", first.own, first.server)
    second.send(wire.INTRODUCTION.pack(stolen, second.incarnation, 0, 0))
    assert wire.INTRODUCTION.unpack(second.take(wire.INTRODUCTION.size))[2] == wire.WRONG_TOKEN
    assert first.introduce() == wire.WELCOME


def test_a_server_of_the_same_port_is_another_one(make_side: MakeSide) -> None:
    source = make_side("tcp")
    client = ClientPeer(source.address)
    client.incarnation += 1
    client.greet()
    assert client.introduce() == wire.ANOTHER_SERVER
    assert client.is_left()


def test_differences_are_told_to_who_has_the_token(make_side: MakeSide) -> None:
    source = make_side("tcp")
    client = ClientPeer(source.address)
    client.greet()
    assert client.introduce(text=wire.layout("another")) == wire.ANOTHER_LAYOUT


@pytest.mark.parametrize("text", [b"", b"x", b"a\nkv\n", b"a\nkv 1 \n", b"a\nkv -1 2\n", b"\xff\xfe\n"])
def test_layouts_that_are_none(text: bytes, make_side: MakeSide) -> None:
    source = make_side("tcp")
    client = ClientPeer(source.address)
    client.greet()
    own = wire.proof(SETTING.token, "client", client.own, client.server)
    client.send(wire.INTRODUCTION.pack(own, client.incarnation, 0, len(text)) + text)
    assert client.is_left()
    assert serves(source, make_side)


def test_those_who_stall_are_left_and_keep_nobody_waiting(make_side: MakeSide) -> None:
    source = make_side("tcp", QUICK)
    silent = [wire.Peer(ClientPeer(source.address).socket) for _ in range(20)]
    halfway = ClientPeer(source.address)
    with contextlib.suppress(EOFError, ConnectionError):  # it is late, and left already
        halfway.greet()
    asking = entered(source.address)
    asking.send(wire.request(1, 0, [0], [0])[:-1])
    idle = entered(source.address)
    while not serves(source, make_side):
        pass
    for peer in (*silent, halfway, asking):
        assert hung_up(peer)
    offer = source.fill("kv", 1)
    idle.send(wire.request(1, 0, offer.pages, offer.epochs))
    assert idle.frame()[1] == wire.PAGES, "who asks for nothing may stay"


def test_very_many_strangers_make_room_for_each_other(make_side: MakeSide) -> None:
    source = make_side("tcp")
    friend = ClientPeer(source.address).enter()
    silent = [wire.Peer(ClientPeer(source.address).socket) for _ in range(100)]
    assert hung_up(silent[0])
    assert serves(source, make_side)
    offer = source.fill("kv", 1)
    friend.send(wire.request(1, 0, offer.pages, offer.epochs))
    assert friend.frame()[1] == wire.PAGES


def test_who_does_not_read_is_left(make_side: MakeSide) -> None:
    sizes = {"kv": (64, 1 << 20)}
    source = make_side("tcp", QUICK, sizes=sizes)
    offer = source.fill("kv", 64)
    client = entered(source.address, f"{SETTING.description}\nkv {1 << 20} 64\n".encode())
    client.send(wire.request(1, 0, offer.pages, offer.epochs))
    target = make_side("tcp", sizes=sizes)
    into = target.take("kv", 64)
    while target.fetch(source.address, offer.into(into)).error:  # others are served meanwhile
        pass
    assert (target.bytes["kv"][into] == offer.contents).all()
    assert hung_up(client)


def part(pool: int, count: int) -> bytes:
    return wire.PART.pack(pool, count)


WRONG = {
    "too long": wire.REQUEST.pack(1, wire.READ, (32 << 20) + 1),
    "of no kind": wire.REQUEST.pack(1, 5, 0),
    "more pages than there are bytes": wire.REQUEST.pack(1, wire.READ, 8) + part(0, 0xFFFFFFFF),
    "a part that is cut off": wire.REQUEST.pack(1, wire.READ, 3) + bytes(3),
    "pages without epochs": wire.REQUEST.pack(1, wire.READ, 12) + part(0, 1) + bytes(4),
    "very many parts": wire.REQUEST.pack(1, wire.READ, 8 * 1000) + part(0, 0) * 1000,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_requests_that_are_none_end_the_connection(wrong: str, make_side: MakeSide) -> None:
    source = make_side("tcp")
    client = ClientPeer(source.address).enter()
    client.send(WRONG[wrong])
    assert client.is_left()
    assert serves(source, make_side)


@pytest.mark.parametrize("pool", [0, 1, 2, 0xFFFFFFFF])
@pytest.mark.parametrize("page", [-1, 64, 0x7FFFFFFF, -0x80000000])
def test_pages_that_there_are_not_are_refused(pool: int, page: int, make_side: MakeSide) -> None:
    source = make_side("tcp")
    client = ClientPeer(source.address).enter()
    client.send(wire.request(1, pool, [page], [0]))
    transfer, kind, text = client.frame()
    assert (transfer, kind) == (1, wire.FAILURE)
    assert b"is not in the source's pool" in text or b"a pool of number" in text
    offer = source.fill("kv", 1)
    client.send(wire.request(2, 0, offer.pages, offer.epochs))
    assert client.frame()[1] == wire.PAGES, "the connection goes on"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200) | st.just(wire.REQUEST.pack(1, wire.READ, 8) + part(0, 0)), max_size=6))
def test_whatever_is_sent_harms_nobody(one_source: Side, pieces: list[bytes]) -> None:
    client = ClientPeer(one_source.address).enter()
    for piece in pieces:
        try:
            client.send(piece)
        except OSError:
            break
    client.socket.close()
    friend = ClientPeer(one_source.address).enter()
    page = 0
    friend.send(wire.request(1, 0, [page], one_source.pools["kv"].epochs([page]).tolist()))
    assert friend.frame() == (1, wire.PAGES, one_source.bytes["kv"][page].tobytes())
    friend.socket.close()


@pytest.fixture
def one_source(make_side: MakeSide) -> Side:
    source = make_side("tcp")
    source.bytes["kv"][:] = np.arange(64, dtype=np.uint8)[:, None]
    return source


def test_a_port_that_is_in_use(make_side: MakeSide, bell: Bell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use: choose another one"):
            open_carrier("tcp", replace(SETTING, port=port), bell)


@pytest.mark.parametrize("token", ["", "ab", "g" * 64, "0" * 63, "0" * 66])
def test_tokens_that_are_none(token: str, bell: Bell) -> None:
    with pytest.raises(ConfigError, match="a token has 64 hexadecimal digits"):
        open_carrier("tcp", replace(SETTING, token=token), bell)


@pytest.mark.parametrize(("host", "expected"), [("0.0.0.0", "is any address"), ("::", "is any address")])
def test_an_address_by_which_nobody_finds_it(host: str, expected: str, bell: Bell) -> None:
    with pytest.raises(ConfigError, match=expected):
        open_carrier("tcp", replace(SETTING, host=host), bell)


@pytest.mark.parametrize("host", ["localhost", "::1", "127.0.0.2"])
def test_hosts(host: str) -> None:
    """A side reads from itself over the address that it tells others."""
    try:
        side = Side("tcp", replace(SETTING, host=host))
    except ConfigError as error:
        assert host == "::1"
        pytest.skip(str(error))
    offer, into = side.fill("kv", 2), side.take("kv", 2)
    assert side.fetch(side.address, offer.into(into)).error == ""
    side.end()


@pytest.mark.parametrize(("told", "other"), [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_it_listens_where_it_is_told_to_and_nowhere_else(make_side: MakeSide, told: str, other: str) -> None:
    source = make_side("tcp", replace(SETTING, host=told))
    port = int(source.address.partition("?")[0].rpartition(":")[2])
    assert source.address.startswith(f"tcp://{told}:")
    with socket.create_connection((told, port)):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, port))


def test_an_engine_of_another_model_is_refused_on_both_sides(
    make_side: MakeSide, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = (
        make_side("tcp", replace(SETTING, host="127.0.0.2")),
        make_side("tcp", replace(SETTING, description="x")),
    )
    error = target.fetch(source.address, source.fill("kv", 1).into(target.take("kv", 1))).error
    assert error.startswith("127.0.0.2 port ")
    assert error.endswith(f"serves {SETTING.description!r}, which is not the 'x' of this side")
    source.poll()
    (told,) = caplog.messages
    assert told.endswith(f"asks for 'x', which is not the {SETTING.description!r} of this side")


@pytest.mark.parametrize("options", [{"description": "two\nlines"}, {"description": ""}, {"patience": 0.0}])
def test_settings_that_are_none(options: dict[str, object], bell: Bell) -> None:
    with pytest.raises(ConfigError, match="the carrier 'tcp': "):
        open_carrier("tcp", replace(SETTING, **options), bell)  # type: ignore[arg-type]
