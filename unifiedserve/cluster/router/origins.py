"""Let web pages of some other origins use a router from browsers (CORS, in the Fetch standard)."""

from collections.abc import Collection
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from unifiedserve.errors import RequestError

_PREFLIGHT = "Access-Control-Request-Method"
_ALLOWED = "unifiedserve.of-an-allowed-origin"  # in a request
_SECONDS = "600"  # for which a browser may remember the answer to a preflight


class Origins:
    """Hold the origins whose pages may ask, such as https://example.com."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = frozenset(allowed)

    def answering(self) -> Middleware:
        """Return what answers preflight requests, and marks those of allowed pages."""

        @web.middleware
        async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.headers.get("Origin") in self._allowed:
                request[_ALLOWED] = True
            if not (self._allowed and request.method == "OPTIONS" and _PREFLIGHT in request.headers):
                return await handler(request)
            if not is_allowed(request):
                raise RequestError("Pages of this origin may not use this router: see --cors-origins.")
            return web.Response(status=HTTPStatus.OK, headers=_allowed_by(request))

        return answer

    async def label(self, request: web.Request, response: web.StreamResponse) -> None:
        """Have a browser show a response to the page that asked, whatever a node says."""
        if not self._allowed:
            return
        response.headers.popall("Access-Control-Allow-Origin", None)
        response.headers.add("Vary", "Origin")
        if is_allowed(request):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = "*"


def is_allowed(request: web.Request) -> bool:
    """Tell whether a page of an allowed origin has sent a request."""
    return _ALLOWED in request


def _allowed_by(request: web.Request) -> dict[str, str]:
    """Return the headers that allow what a preflight request asks for."""
    headers = {"Access-Control-Allow-Methods": request.headers[_PREFLIGHT], "Access-Control-Max-Age": _SECONDS}
    if asked := request.headers.get("Access-Control-Request-Headers"):
        headers["Access-Control-Allow-Headers"] = asked
    return headers
