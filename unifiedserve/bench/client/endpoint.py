"""Send one request to a chat endpoint, and record its fate."""

import asyncio
import re
import secrets

import httpx
import msgspec

from unifiedserve.bench.client.answer import Answer
from unifiedserve.bench.client.clock import Clock
from unifiedserve.bench.client.events import BrokenStreamError, chunks
from unifiedserve.bench.records import Record
from unifiedserve.errors import NO_JSON

_PATH = "v1/chat/completions"
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}  # a compressed stream comes in lumps
_LONGEST_ID = 64
_SHOWN = 300  # characters of a message


class Endpoint:
    """Reach a server's chat endpoint. A server that is silent for as long as the client's read timeout has failed."""

    def __init__(self, http: httpx.AsyncClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._name = secrets.token_hex(4)  # of the run, so that requests of another are not taken for its own

    async def ask(self, body: bytes, record: Record) -> Answer:
        """Send `body` now and fill `record`. It gets the time, the answer or why there is none."""
        answer = Answer(record)
        headers = {**_HEADERS, "X-Request-Id": self._id(record)}
        record.sent = self._clock.now()
        try:
            async with self._http.stream("POST", _PATH, content=body, headers=headers) as response:
                record.status = response.status_code
                if response.is_success:
                    await self._read(response, answer, record)
                else:
                    record.error = f"status {response.status_code}: {_refusal(response, await response.aread())}"
        except httpx.HTTPError as error:
            record.error = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        except BrokenStreamError as error:
            record.error = str(error)
        except asyncio.CancelledError:
            record.error = "cut off: the run ended before the answer"
            raise
        finally:
            record.ended = self._clock.now()
            answer.settle()
        return answer

    async def _read(self, response: httpx.Response, answer: Answer, record: Record) -> None:
        async for now, chunk in chunks(response, self._clock):
            if (failure := chunk.failure) is not None:
                record.error = _said(failure)
                return
            answer.take(now, chunk)

    def _id(self, record: Record) -> str:
        """Return the request's name in the server's trace, where the client can choose it."""
        request = re.sub(r"[^A-Za-z0-9._:-]", "-", record.request)[-_LONGEST_ID:]
        return f"{self._name}-{request}.{record.turn}"


def _refusal(response: httpx.Response, body: bytes) -> str:
    """Return why there is no answer: in the server's words, or where else it is said to be."""
    return f"it is at {response.headers['location']}" if response.has_redirect_location else message_of(body)


def message_of(body: bytes) -> str:
    """Return the message of an error's body, in one line."""
    try:
        return _said(msgspec.json.decode(body))
    except NO_JSON:
        return _shortened(body.decode(errors="replace"))


def _said(error: object) -> str:
    """Return the message of an error in any of the forms that servers give it."""
    while isinstance(error, dict) and (inner := error.get("error") or error.get("message") or error.get("detail")):
        error = inner
    return _shortened(error if isinstance(error, str) else msgspec.json.encode(error).decode())


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + " …"
