"""Download for clients: addresses checked and pinned on every hop, bytes and time capped."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from functools import cache
from http import HTTPStatus
from types import TracebackType
from typing import Self

import anyio
import httpx

from unifiedserve import __version__
from unifiedserve.errors import RequestError
from unifiedserve.server.media.budget import unbounded
from unifiedserve.server.media.network import ForbiddenAddressError, check_public, resolve

_MAX_REDIRECTS = 5
_HEADERS = {"User-Agent": f"unifiedserve/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"}


@cache
def _trusted_certificates() -> ssl.SSLContext:
    """Read the certificates that servers may have; all apps of a process share them."""
    return httpx.create_ssl_context(trust_env=False)


class Downloader:
    """Fetch http(s) URLs.

    A host name is resolved once a hop, all its addresses are checked, and the connection goes to a checked
    address (`Host`, SNI and the certificate are still the name's), so that a name server cannot answer
    differently the second time. Connections are not reused: they belong to an address, not to a name.
    """

    def __init__(
        self, *, max_bytes: int, timeout: float, allow_private: bool, allowed_domains: Collection[str] = ()
    ) -> None:
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._allow_private = allow_private
        self._allowed_domains = {domain.lower() for domain in allowed_domains}
        self._client = httpx.AsyncClient(
            timeout=timeout,
            verify=_trusted_certificates(),
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def fetch(self, url: str, take: Callable[[int], None] = unbounded) -> bytearray:
        """Return the bytes at `url`; raise RequestError 400 that names the host and the reason.

        `take` is told how many bytes come before they are in memory; its errors end the download.
        """
        parsed = _parse(url)
        scope = anyio.CancelScope()  # a task's own `cancel` would break off httpx's closing, too
        fetching = asyncio.create_task(self._fetch_in(scope, parsed, take))
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            scope.cancel()
            fetching.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else looks
            await asyncio.wait([fetching])
            raise
        except TimeoutError:
            raise _failed(parsed, f"took longer than {self._timeout:g} s") from None

    async def _fetch_in(self, scope: anyio.CancelScope, url: httpx.URL, take: Callable[[int], None]) -> bytearray:
        with scope, anyio.fail_after(self._timeout):
            return await self._fetch(url, take)
        return bytearray()  # for nobody: the scope was cancelled

    async def _fetch(self, url: httpx.URL, take: Callable[[int], None]) -> bytearray:
        for _ in range(_MAX_REDIRECTS + 1):
            async with self._get(url) as response:
                if response.has_redirect_location:
                    url = _redirected(url, response.headers["location"])
                elif response.status_code == HTTPStatus.OK:
                    return await self._read(url, response, take)
                else:
                    raise _failed(url, f"the server answered {response.status_code} {response.reason_phrase}")
        raise _failed(url, f"more than {_MAX_REDIRECTS} redirects")

    @contextlib.asynccontextmanager
    async def _get(self, url: httpx.URL) -> AsyncIterator[httpx.Response]:
        try:
            response = await self._connect(url, await self._addresses(url))
            try:
                yield response
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _failed(url, _reason(error)) from None

    async def _addresses(self, url: httpx.URL) -> list[str]:
        if self._allowed_domains and url.host.lower() not in self._allowed_domains:
            raise _failed(url, "the host is not in --allowed-media-domains")
        try:
            addresses = await resolve(url.raw_host.decode(), url.port or _default_port(url))
            if not self._allow_private:
                check_public(addresses)
        except ForbiddenAddressError as error:
            raise _failed(url, f"the host {error} (see --allow-private-media)") from None
        except (OSError, UnicodeError) as error:
            raise _failed(url, f"the name cannot be resolved ({error})") from None
        return addresses

    async def _connect(self, url: httpx.URL, addresses: list[str]) -> httpx.Response:
        """Return the response of the first address that accepts the connection."""
        *others, last = addresses
        for address in others:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._send(url, address)
        return await self._send(url, last)

    async def _send(self, url: httpx.URL, address: str) -> httpx.Response:
        request = self._client.build_request(
            "GET",
            url.copy_with(host=address),
            headers={**_HEADERS, "Host": url.netloc.decode()},
            extensions={"sni_hostname": url.raw_host.decode()},
        )
        return await self._client.send(request, stream=True)

    async def _read(self, url: httpx.URL, response: httpx.Response, take: Callable[[int], None]) -> bytearray:
        """Read the body, counted as it comes: Content-Length may be missing or wrong."""
        announced = response.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise _failed(url, self._too_large())
        taken = int(announced) if announced.isdecimal() else 0
        take(taken)
        data = bytearray()
        async for piece in response.aiter_raw():
            size = len(data) + len(piece)
            if size > self._max_bytes:
                raise _failed(url, self._too_large())
            if size > taken:
                take(size - taken)
                taken = size
            data += piece
        return data

    def _too_large(self) -> str:
        return f"larger than {self._max_bytes} bytes (see --max-media-mib)"


def _parse(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
        host = parsed.host  # decodes xn--, which may be no name at all
    except (httpx.InvalidURL, ValueError) as error:
        raise RequestError(f"Not a valid URL: {error}.", code="invalid_media_url") from None
    if parsed.scheme not in ("http", "https") or not host:
        raise RequestError("A media URL must be http(s)://HOST/….", code="invalid_media_url")
    if parsed.userinfo:
        raise RequestError("A media URL must not contain a user or password.", code="invalid_media_url")
    return parsed


def _redirected(url: httpx.URL, location: str) -> httpx.URL:
    try:
        return _parse(str(url.join(location)))
    except (httpx.InvalidURL, ValueError):
        raise _failed(url, "redirected to an invalid URL") from None


def _default_port(url: httpx.URL) -> int:
    return 443 if url.scheme == "https" else 80


def _reason(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _failed(url: httpx.URL, reason: str) -> RequestError:
    return RequestError(f"Cannot fetch media from {url.host}: {reason}.", code="media_unavailable")
