"""A reader over TCP and servers that fail, lie or are somebody else: an error in time, and nothing written after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import page_wire as wire
import pytest
from page_wire import FakeServer, ServerPeer
from sides import SETTING, MakeSide, Side

from unifiedserve.carriers.base import Copy

PAGE = 4096
QUICK = replace(SETTING, patience=0.2)
Script = Callable[[ServerPeer], None]


@pytest.fixture
def play() -> Iterator[Callable[..., FakeServer]]:
    servers: list[FakeServer] = []

    def start(*scripts: Script) -> FakeServer:
        servers.append(FakeServer(*scripts))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


def read(target: Side, server: FakeServer, pages: int = 2) -> str:
    """Read pages; return the error. What is written is written before it is told."""
    into = target.take("kv", pages)
    target.bytes["kv"][into] = 0
    error = target.fetch(server.address, Copy("kv", list(range(pages)), [0] * pages, into)).error
    assert "\n" not in error
    seen = target.bytes["kv"][into].copy()
    assert (target.bytes["kv"][into] == seen).all()
    target.pools["kv"].release(into)
    return error


def answer(peer: ServerPeer) -> None:
    """Serve one request as it should be."""
    asked = peer.asked()
    for page in asked.pages:
        peer.frame(asked.transfer, wire.PAGES, bytes([page + 1]) * PAGE)
    peer.frame(asked.transfer, wire.END)


def serves(peer: ServerPeer) -> None:
    peer.welcome()
    answer(peer)
    assert peer.is_left()


def test_a_server_that_was_written_from_the_description(play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    target, into = make_side("tcp"), [0, 1, 2]
    assert target.take("kv", 3)
    assert target.fetch(play(serves).address, Copy("kv", [4, 9, 6], [0] * 3, sorted(into))).error == ""
    assert target.bytes["kv"][into, 0].tolist() == [5, 10, 7]
    target.carrier.shut()


def greeting_with(**options: object) -> Script:
    def script(peer: ServerPeer) -> None:
        peer.greet(**options)  # type: ignore[arg-type]
        assert peer.is_left()

    return script


def introduction_with(**options: object) -> Script:
    def script(peer: ServerPeer) -> None:
        peer.greet()
        peer.introduce(**options)  # type: ignore[arg-type]
        assert peer.is_left()

    return script


def frames(*told: tuple[int, int, bytes, int | None]) -> Script:
    """Answer a request with frames: what their transfer's number is more than asked, kind, data, length if it lies."""

    def script(peer: ServerPeer) -> None:
        peer.welcome()
        asked = peer.asked()
        for more, kind, data, size in told:
            peer.frame(asked.transfer + more, kind, data, size)
        assert peer.is_left()

    return script


def says_nothing(peer: ServerPeer) -> None:
    assert peer.is_left()


def sends(data: bytes) -> Script:
    def script(peer: ServerPeer) -> None:
        peer.send(data)
        assert peer.is_left()

    return script


def stops_after(steps: int) -> Script:
    def script(peer: ServerPeer) -> None:
        actions: list[Callable[[], object]] = [
            peer.greet,
            peer.introduce,
            lambda: peer.send(wire.FRAME.pack(peer.asked().transfer, wire.PAGES, 2 * PAGE)),
            lambda: peer.send(bytes(100)),
            lambda: peer.send(bytes(2 * PAGE - 100)),
        ]
        for action in actions[:steps]:
            action()
        assert peer.is_left()

    return script


LIES: dict[str, tuple[Script, str]] = {
    "something else": (sends(b"HTTP/1.1 200 OK\r\n\r\n"), "serves something else than pages"),
    "another magic": (greeting_with(magic=b"pagesput"), "serves something else than pages"),
    "another version": (greeting_with(version=2), "speaks version 2 of the protocol, and this side 1"),
    "no token": (introduction_with(token="00" * 32), "does not have the token"),
    "refuses the token": (introduction_with(verdict=wire.WRONG_TOKEN), "has another token than this side"),
    "another server": (introduction_with(incarnation=78), "is another server than the one that was there"),
    "no layout": (introduction_with(text=b"x"), "does not describe its pages properly"),
    "a layout of no numbers": (introduction_with(text=b"x\nkv 4096 many\n"), "does not describe its pages properly"),
    "a giant layout": (introduction_with(length=1 << 30), "at too great a length"),
    "another page size": (introduction_with(text=wire.layout().replace(b" 4096 ", b" 512 ")), "of 512 bytes, and this"),
    "another model": (introduction_with(text=wire.layout("huge")), "serves 'huge', which is not the 'tiny"),
    "speaks out of turn": (
        introduction_with(text=wire.layout() + wire.FRAME.pack(0, wire.END, 0), length=len(wire.layout())),
        "answers what nobody asked",
    ),
    "too many bytes": (frames((0, wire.PAGES, b"x" * (2 * PAGE + 1), None)), "8193 bytes of pages where at most 8192"),
    "too many in two frames": (
        frames((0, wire.PAGES, b"x" * PAGE, None), (0, wire.PAGES, b"x" * (PAGE + 1), None)),
        "4097 bytes of pages where at most 4096",
    ),
    "a giant frame": (frames((0, wire.PAGES, b"", 0xFFFFFFFF)), "4294967295 bytes of pages"),
    "an empty frame": (frames((0, wire.PAGES, b"", None)), "sends 0 bytes"),
    "an end too early": (
        frames((0, wire.PAGES, b"x" * PAGE, None), (0, wire.END, b"", None)),
        "4096 bytes are missing",
    ),
    "an end with a tail": (
        frames((0, wire.PAGES, b"x" * 2 * PAGE, None), (0, wire.END, b"tail", None)),
        "behind the end",
    ),
    "another transfer": (frames((1, wire.PAGES, b"x" * PAGE, None)), "answers what nobody asked"),
    "no transfer": (frames((-1, wire.PAGES, b"x" * PAGE, None)), "answers what nobody asked"),
    "an unknown frame": (frames((0, 9, b"", None)), "what there is not in this protocol"),
    "a failure of no words": (frames((0, wire.FAILURE, b"", None)), "no proper reason"),
    "a failure of too many words": (frames((0, wire.FAILURE, b"", 1 << 20)), "no proper reason"),
    "a failure": (frames((0, wire.FAILURE, b"page 0 is on holiday", None)), ": page 0 is on holiday"),
    "a failure meanwhile": (
        frames((0, wire.PAGES, b"x" * PAGE, None), (0, wire.FAILURE, b"page 1 is on holiday", None)),
        ": page 1 is on holiday",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_servers_that_are_wrong(lie: str, play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    script, expected = LIES[lie]
    target = make_side("tcp")
    server = play(script)
    error = read(target, server)
    assert expected in error
    assert error.startswith("127.0.0.1 port "), "it says of whom"
    target.carrier.shut()


@pytest.mark.parametrize("script", [says_nothing, sends(b"page"), *map(stops_after, range(1, 6))])
def test_servers_that_stop(script: Script, play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    assert "sent nothing that was waited for in 0.2" in read(make_side("tcp", QUICK), play(script))


def test_a_server_that_trickles(play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    """A byte now and then does not keep a reader waiting: a frame has its time."""
    ended = threading.Event()

    def script(peer: ServerPeer) -> None:
        peer.welcome()
        peer.send(wire.FRAME.pack(peer.asked().transfer, wire.PAGES, 2 * PAGE))
        while not ended.wait(0.02):
            peer.send(b"x")

    error = read(make_side("tcp", QUICK), play(script))
    ended.set()
    assert "sent nothing that was waited for" in error


@pytest.mark.parametrize("steps", range(6))
def test_servers_that_crash(steps: int, play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    def script(peer: ServerPeer) -> None:
        actions: list[Callable[[], object]] = [
            peer.greet,
            peer.introduce,
            lambda: peer.send(wire.FRAME.pack(peer.asked().transfer, wire.PAGES, 2 * PAGE)),
            lambda: peer.send(bytes(100)),
            lambda: peer.send(bytes(2 * PAGE - 100)),
        ]
        for action in actions[:steps]:
            action()
        peer.reset()

    error = read(make_side("tcp"), play(script))
    assert "the connection broke" in error or "closed the connection" in error or "Connection reset" in error


def test_nobody_listens(make_side: MakeSide) -> None:
    target = make_side("tcp")
    address = "tcp://127.0.0.1:1?server=1"
    error = target.fetch(address, Copy("kv", [0], [0], target.take("kv", 1))).error
    assert error == "127.0.0.1 port 1 cannot be connected to: Connection refused"


@pytest.mark.parametrize("host", ["localhost", "example.invalid", "", "[::1"])
def test_names_are_not_looked_up(make_side: MakeSide, host: str) -> None:
    target = make_side("tcp")
    error = target.fetch(f"tcp://{host}:1?server=1", Copy("kv", [0], [0], target.take("kv", 1))).error
    assert error.endswith("is no address of a carrier 'tcp'")


def test_it_connects_again_after_a_failure(play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    target = make_side("tcp")
    server = play(lambda peer: peer.reset(), says_nothing_and_closes, serves)
    assert read(target, server)
    assert read(target, server)
    assert read(target, server) == ""
    target.carrier.shut()


def says_nothing_and_closes(peer: ServerPeer) -> None:
    peer.welcome()
    peer.socket.close()


def test_all_that_is_under_way_ends_with_the_connection(play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    """Those that were answered before are not touched by it."""

    told = threading.Event()

    def script(peer: ServerPeer) -> None:
        peer.welcome()
        answer(peer)
        peer.asked()
        assert told.wait()
        peer.reset()

    target = make_side("tcp")
    server = play(script)
    into = target.take("kv", 4)
    transfers = [target.carrier.read(server.address, [Copy("kv", [n], [0], [page])]) for n, page in enumerate(into)]
    assert target.wait(transfers[0])[0].error == ""
    told.set()
    assert all(done.error for done in target.wait(*transfers[1:]))
    assert (target.bytes["kv"][into[0]] == 1).all()


def test_closing_while_a_frame_comes(play: Callable[..., FakeServer], make_side: MakeSide) -> None:
    """What is left of it is thrown away, the server is told, and the next transfer comes on the same connection."""
    begun, closed = threading.Event(), threading.Event()

    def script(peer: ServerPeer) -> None:
        peer.welcome()
        asked = peer.asked()
        peer.send(wire.FRAME.pack(asked.transfer, wire.PAGES, 2 * PAGE) + b"x" * PAGE)
        begun.set()
        assert closed.wait()
        forgotten = peer.asked()
        assert (forgotten.kind, forgotten.transfer) == (wire.FORGET, asked.transfer)
        peer.send(b"y" * PAGE)
        peer.frame(asked.transfer, wire.END)
        answer(peer)
        assert peer.is_left()

    target = make_side("tcp")
    server = play(script)
    into = target.take("kv", 3)
    transfer = target.carrier.read(server.address, [Copy("kv", [0, 1], [0, 0], into[:2])])
    assert begun.wait()
    target.carrier.close(transfer)
    target.bytes["kv"][into] = 3
    closed.set()
    assert target.fetch(server.address, Copy("kv", [5], [0], into[2:])).error == ""
    assert (target.bytes["kv"][into[:2]] == 3).all()
    assert (target.bytes["kv"][into[2]] == 6).all()
    assert target.poll() == {}
    target.carrier.shut()
