"""Log a line a request, with an id. Log lines, traces and answers belong together by it."""

import logging
import time
import uuid
from urllib.parse import quote

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unifiedserve.observe.logs import ACCESS_LOGGER, REQUEST_ID
from unifiedserve.observe.otel import CALLERS_TRACE
from unifiedserve.server.access.caller import caller_of
from unifiedserve.server.requests.receive import is_request_id

_log = logging.getLogger(ACCESS_LOGGER)

_HEADER = b"x-request-id"
_TRACE = {b"traceparent": "traceparent", b"tracestate": "tracestate"}
_KNOWN = {_HEADER, *_TRACE}
_LONGEST_PATH = 256  # characters
_WITHOUT_BODY = (204, 304)  # statuses, by HTTP's own rules (RFC 9110, 6.4.1)


class RequestLog:
    """Wrap the app, whose requests are known by their ids. Goes around all other middleware.

    A line a request is logged at level INFO: without query, headers and body, which may hold secrets.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; its id stays the task's, so that also what is logged of a crash has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        known = {name: value for name, value in scope["headers"] if name in _KNOWN}
        id = _take_id(scope, known.get(_HEADER))
        REQUEST_ID.set(id)
        CALLERS_TRACE.set({name: known[key].decode("latin-1") for key, name in _TRACE.items() if key in known})
        answer = _Answer(scope["method"], receive, send, id)
        began = time.monotonic()
        try:
            await self._app(scope, answer.receive, answer.send)
        except Exception:
            answer.status = answer.status or 500  # as its catcher will answer
            raise
        finally:
            _write(scope, answer, time.monotonic() - began)


class _Answer:
    """Count what was sent of an answer. `bytes` are those of the body that reached the client."""

    def __init__(self, method: str, receive: Receive, send: Send, id: str) -> None:
        self.status: int | None = None
        self.bytes = 0
        self._sends_body = method != "HEAD"
        self._receive = receive
        self._send = send
        self._id = id

    async def receive(self) -> Message:
        """Return what comes next from the client; bytes sent after it has gone reach nobody."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._sends_body = False
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer; its headers tell the request's id, if they do not yet tell what became of it."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            if not any(name == _HEADER for name, _ in headers):
                headers.append((_HEADER, self._id.encode()))
            message["headers"] = headers
            self._sends_body = self._sends_body and self.status not in _WITHOUT_BODY
        elif message["type"] == "http.response.body" and self._sends_body:
            self.bytes += len(message.get("body", b""))
        await self._send(message)


def _take_id(scope: Scope, given: bytes | None) -> str:
    """Return the client's X-Request-Id; a new one, which becomes that header, if there is none or an odd one."""
    text = (given or b"").decode("latin-1")
    if is_request_id(text):
        return text
    id = uuid.uuid4().hex
    others = [(name, value) for name, value in scope["headers"] if name != _HEADER]
    scope["headers"] = [*others, (_HEADER, id.encode())]
    return id


def _write(scope: Scope, answer: _Answer, seconds: float) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    fields = {
        "method": scope["method"],
        "path": quote(scope["path"])[:_LONGEST_PATH],  # quoted: it cannot begin a new line
        "status": answer.status,
        "seconds": round(seconds, 3),
        "bytes": answer.bytes,
        "caller": caller_of(Request(scope)).name,
    }
    text = "%(method)s %(path)s %(status)s, %(seconds).3f s, %(bytes)d bytes, caller %(caller)s, request "
    _log.info(text % fields + (REQUEST_ID.get() or ""), extra={"fields": fields})
