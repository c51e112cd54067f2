"""Accept requests whose target is a whole URL, as for proxies: every server must know these, too."""

from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEMES = (b"http://", b"https://")


class Targets:
    """Wrap the app, so that it sees such a target as a path. The target's host becomes the request's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope.get("raw_path", b"").lower().startswith(_SCHEMES):
            scope = _as_path(scope)
        await self._app(scope, receive, send)


def _as_path(scope: Scope) -> Scope:
    authority, slash, rest = scope["raw_path"].partition(b"://")[2].partition(b"/")
    path = slash + rest or b"/"
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    headers = [*others, (b"host", authority.rpartition(b"@")[2])]
    return {**scope, "raw_path": path, "path": unquote(path.decode("ascii")), "headers": headers}
