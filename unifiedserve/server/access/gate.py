"""Guard the way into the app: for the right host, with a key where keys are set, and within the caller's limits."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.caller import Caller, address_of, note_caller
from unifiedserve.server.access.guesses import Guesses
from unifiedserve.server.access.hosts import Hosts
from unifiedserve.server.access.keys import Keys, shown_digest
from unifiedserve.server.access.limits import Limits
from unifiedserve.server.errors import error_response

# What tells nothing of anybody: probes, and the page's own files. The page asks for a key.
_PROBES = ("/health", "/ready")
_OPEN = ("/",)
_OPEN_BELOW = ("/playground/",)
_CLOSED = ("/playground/settings",)


class Gate:
    """Wrap the app in these checks."""

    def __init__(self, app: ASGIApp, hosts: Hosts, keys: Keys, limits: Limits) -> None:
        self._app = app
        self._hosts = hosts
        self._keys = keys
        self._limits = limits
        self._guesses = Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with an error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            if scope["path"] in _PROBES:  # by addresses, as whatever watches over it knows it
                await self._app(scope, receive, send)
                return
            self._hosts.check(headers.get("host"))
            if _is_open(scope["path"]):
                await self._app(scope, receive, send)
                return
            caller = self._caller(scope, headers)
            note_caller(scope, caller)
            with self._limits.entered(caller.name):
                await self._app(scope, receive, send)
        except RequestError as error:
            await error_response(error, scope["path"])(scope, receive, send)

    def _caller(self, scope: Scope, headers: Headers) -> Caller:
        if not self._keys:
            return address_of(scope)
        name = self._name(address_of(scope).name, shown_digest(headers))
        if name is None:
            raise RequestError(
                "This server needs an API key: send the header Authorization: Bearer KEY, or X-Api-Key: KEY.",
                ErrorKind.NO_KEY,
                code="invalid_api_key",
            )
        return Caller(name, keyed=True)

    def _name(self, address: str, shown: bytes | None) -> str | None:
        """Return the name of the key that is shown; None for none. Raises RequestError 429 for too many wrong ones."""
        if shown is None:
            return None
        self._guesses.check(address, shown)
        name = self._keys.name_of(shown)
        if name is None:
            self._guesses.wrong(address)
        else:
            self._guesses.right(address, shown)
        return name


def _is_open(path: str) -> bool:
    return path in _OPEN or (path.startswith(_OPEN_BELOW) and path not in _CLOSED)
