"""Downloads from a local server that misbehaves on request."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.media import download
from unifiedserve.server.media.download import Downloader

Handler = Callable[["Site", asyncio.StreamWriter], Awaitable[None]]
DATA = b"video bytes"
LIMIT = 1 << 16
MAKE_CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=clips.test"]


class Site:
    """An HTTP server on 127.0.0.1 whose paths are handlers; remembers the heads of requests."""

    def __init__(self, paths: dict[str, Handler]) -> None:
        self.paths = paths
        self.heads: list[str] = []
        self.port = 0
        self.closed_early = asyncio.Event()

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            await self.paths[head.split()[1]](self, writer)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def running(paths: dict[str, Handler], tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    site = Site(paths)
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def reply(head: str, body: bytes = b"") -> Handler:
    async def handler(site: Site, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {head.format(port=site.port)}\r\nConnection: close\r\n\r\n".encode() + body)

    return handler


async def endless(site: Site, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        while True:
            writer.write(b"1000\r\n" + bytes(0x1000) + b"\r\n")
            await writer.drain()
    except ConnectionError:
        site.closed_early.set()
        raise


async def stall(site: Site, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
    await asyncio.Event().wait()


OK = reply(f"200 OK\r\nContent-Length: {len(DATA)}", DATA)
PATHS: dict[str, Handler] = {
    "/ok": OK,
    "/unannounced": reply("200 OK", DATA),
    "/relative": reply("302 Found\r\nLocation: /ok"),
    "/absolute": reply("307 Temporary Redirect\r\nLocation: http://127.0.0.1:{port}/ok"),
    "/loop": reply("302 Found\r\nLocation: /loop"),
    "/to-file": reply("302 Found\r\nLocation: file:///etc/passwd"),
    "/to-nowhere": reply("302 Found\r\nLocation: http://x:oops/"),
    "/to-private": reply("302 Found\r\nLocation: http://127.0.0.1:{port}/ok"),
    "/missing": reply("404 Not Found\r\nContent-Length: 0"),
    "/partial": reply("206 Partial Content\r\nContent-Length: 3", b"abc"),
    "/announced-large": reply("200 OK\r\nContent-Length: 999999999", DATA),
    "/too-short": reply("200 OK\r\nContent-Length: 100", DATA),
    "/garbage": reply("what is this"),
    "/endless": endless,
    "/stall": stall,
}


def downloader(**options: Any) -> Downloader:
    defaults: dict[str, Any] = {"max_bytes": LIMIT, "timeout": 60.0, "allow_private": True}
    return Downloader(**{**defaults, **options})


async def refused(url: str, **options: Any) -> str:
    async with downloader(**options) as fetcher:
        with pytest.raises(RequestError) as caught:
            await fetcher.fetch(url)
    assert caught.value.kind is ErrorKind.INVALID
    return caught.value.message


@pytest.mark.parametrize("path", ["/ok", "/unannounced", "/relative", "/absolute"])
async def test_fetch(path: str) -> None:
    async with running(PATHS) as site, downloader() as fetcher:
        assert await fetcher.fetch(site.url(path)) == DATA


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/loop", "redirects"),
        ("/to-file", "http(s)"),
        ("/to-nowhere", "Invalid URL"),
        ("/missing", "404"),
        ("/partial", "206"),
        ("/announced-large", "larger than 65536 bytes"),
        ("/endless", "larger than 65536 bytes"),
        ("/too-short", "127.0.0.1"),
        ("/garbage", "127.0.0.1"),
    ],
)
async def test_bad_answers(path: str, reason: str) -> None:
    async with running(PATHS) as site:
        assert reason in await refused(site.url(path))


async def test_a_body_in_many_pieces_grows_one_buffer() -> None:
    body = bytes(range(256)) * (LIMIT // 256)
    counted: list[int] = []
    async with running({"/pieces": reply("200 OK", body)}) as site, downloader() as fetcher:
        data = await fetcher.fetch(site.url("/pieces"), counted.append)
    assert isinstance(data, bytearray)
    assert data == body
    assert sum(counted) == LIMIT


async def test_endless_body_is_cut_off() -> None:
    async with running(PATHS) as site:
        await refused(site.url("/endless"))
        await site.closed_early.wait()


async def test_slow_body_ends_at_the_time_limit() -> None:
    async with running(PATHS) as site:
        assert "longer than 0.2 s" in await refused(site.url("/stall"), timeout=0.2)


async def test_private_addresses_are_refused_before_connecting() -> None:
    async with running(PATHS) as site:
        for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
            message = await refused(site.url("/ok", host), allow_private=False)
            assert "not a public address" in message
            assert "--allow-private-media" in message
        assert site.heads == []


@pytest.mark.parametrize("url", ["http://xn--a.invalid/", "https://[::1", "http://x:port/", "http://\u200b.x/"])
async def test_name_that_cannot_be_one_is_refused(url: str) -> None:
    assert "Not a valid URL" in await refused(url)


async def test_redirect_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hop is taken for public, the second is what it is."""
    checked: list[list[str]] = []
    check = download.check_public

    def check_all_but_first(addresses: list[str]) -> None:
        checked.append(addresses)
        if len(checked) > 1:
            check(addresses)

    monkeypatch.setattr(download, "check_public", check_all_but_first)
    async with running(PATHS) as site:
        assert "not a public address" in await refused(site.url("/to-private"), allow_private=False)
        assert len(site.heads) == 1
    assert len(checked) == 2


async def test_the_checked_address_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that changes its answer is asked once; the name itself exists nowhere else."""
    answers = iter([["127.0.0.1"]])

    async def resolve(host: str, port: int) -> list[str]:
        assert host == "rebind.test"
        return next(answers)

    monkeypatch.setattr(download, "resolve", resolve)
    async with running(PATHS) as site, downloader() as fetcher:
        assert await fetcher.fetch(site.url("/ok", "rebind.test")) == DATA
        assert f"host: rebind.test:{site.port}\r\n" in site.heads[0].lower()


async def test_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(download, "resolve", resolve)
    async with running(PATHS) as site, downloader() as fetcher:
        assert await fetcher.fetch(site.url("/ok", "two.test")) == DATA


async def test_unreachable_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "Cannot fetch media from 127.0.0.1" in await refused(f"http://127.0.0.1:{port}/a.mp4")


async def test_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(download, "resolve", resolve)
    message = await refused("http://nowhere.test/a.mp4")
    assert "nowhere.test" in message
    assert "Name or service not known" in message


async def test_allowed_domains() -> None:
    async with running(PATHS) as site, downloader(allowed_domains=["LocalHost"]) as fetcher:
        assert await fetcher.fetch(site.url("/ok", "localhost")) == DATA
        assert "--allowed-media-domains" in await refused(site.url("/ok"), allowed_domains=["localhost"])
        assert "--allowed-media-domains" in await refused(
            site.url("/absolute", "localhost"), allowed_domains=["localhost"]
        )


class Lasting:
    """A server that keeps connections until its clients close them."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(DATA)}\r\n\r\n".encode() + DATA)
        self.answered.set()
        await reader.read()
        self.left.set()
        writer.close()


async def test_a_client_that_leaves_at_any_time_leaves_no_connection_behind() -> None:
    """Breaking off at any turn of the loop must not break off the closing of the connection."""
    site = Lasting()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with downloader() as fetcher:
        for turns in range(15):
            fetching = asyncio.create_task(fetcher.fetch(url))
            await site.answered.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            fetching.cancel()
            await asyncio.wait([fetching])
            await site.left.wait()
            site.answered.clear()
            site.left.clear()
    server.close()


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///a", "http://[", "http://a b/", "http://x:99999/", "http://user:pw@127.0.0.1/", "http://a..b/"],
)
async def test_bad_url(url: str) -> None:
    await refused(url)


async def test_tls_name_and_certificate_are_the_url_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        subprocess.run(
            [*MAKE_CERTIFICATE, "-addext", "subjectAltName=DNS:clips.test", "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("needs the openssl command")
    names: list[str | None] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    tls.sni_callback = lambda socket, name, context: names.append(name)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    trust = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    monkeypatch.setattr(download, "resolve", resolve)
    monkeypatch.setattr(httpx, "create_ssl_context", lambda *args, **kwargs: trust)
    monkeypatch.setattr("httpx._transports.default.create_ssl_context", lambda *args, **kwargs: trust, raising=False)
    async with running(PATHS, tls) as site, downloader() as fetcher:
        assert await fetcher.fetch(site.url("/ok", "clips.test", "https")) == DATA
        assert "certificate" in (await refused(site.url("/ok", "other.test", "https"))).lower()
    assert names == ["clips.test", "other.test"]
