"""A node whose answers are known: token n of an answer is n, its text `n `. It breaks off when it is told to."""

import asyncio
import json
from typing import Any, NoReturn

import msgspec
from aiohttp import web

from unifiedserve.messages.load import EngineLoad, LoadReport
from unifiedserve.placement import Stage
from unifiedserve.server.answers.marks import BEGUN, HEADER

MODEL = "fake"


class FakeNode:
    """A server on a free port of loopback."""

    def __init__(self, model: str = MODEL, **load: Any) -> None:
        self.model = model
        self.load = EngineLoad(**load)
        self.stages = tuple(Stage)
        self.requests: list[dict[str, Any]] = []
        self.ids: list[str | None] = []
        self.begun_ids: list[str | None] = []
        self.origins: list[str | None] = []
        self.traces: list[str | None] = []
        self.breaks_after: list[int] = []  # tokens, in the next answers
        self.hangs_at: int | None = None  # the token of an answer from which on it says nothing any more
        self.refuses = 0  # requests that come next
        self.kept: set[str] = set()
        self.timeline: dict[str, Any] = {}
        self.left = asyncio.Event()
        self.silent = asyncio.Event()
        self.babbles = b""  # what it tells of its load instead
        self.pause = 0.0
        self.last_words = b""  # instead of breaking the connection
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/load", self._load)
        app.router.add_post("/v1/plan", self._plan)
        app.router.add_post("/{path:.*}", self._answer)
        app.router.add_get("/{path:.*}", self._kept)
        app.router.add_delete("/{path:.*}", self._gone)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Be gone."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    async def _load(self, request: web.Request) -> web.Response:
        if self.silent.is_set():
            await asyncio.Event().wait()
        if self.babbles:
            return web.Response(body=self.babbles)
        report = LoadReport(
            model=self.model,
            version="0",
            started=0,
            healthy=True,
            max_model_len=100,
            load=self.load,
            stages=self.stages,
        )
        return web.Response(body=msgspec.json.encode(report))

    async def _plan(self, request: web.Request) -> web.Response:
        raise web.HTTPNotFound

    async def _kept(self, request: web.Request) -> web.Response:
        if request.path == "/debug/trace":
            return web.json_response({**self.timeline, "asked": request.query["request_id"]})
        if request.path not in self.kept:
            raise web.HTTPNotFound
        return web.json_response({"from": self.url})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = json.loads(await request.read())
            wanted = range(asked["max_tokens"])
        except (ValueError, KeyError, RecursionError):
            return web.json_response({"error": {"message": "no JSON for a node"}}, status=400)
        self.requests.append(asked)
        self.ids.append(request.headers.get("X-Request-Id"))
        self.begun_ids.append(request.headers.get(BEGUN))
        self.origins.append(request.headers.get("Origin"))
        self.traces.append(request.headers.get("traceparent"))
        if self.refuses:
            self.refuses -= 1
            return web.json_response({"error": {"message": "busy"}}, status=429, headers={"Retry-After": "7"})
        if self.hangs_at == -1:
            self.silent.set()
            await asyncio.Event().wait()
        begun = len((asked.get("resume") or [[]])[0]) if "resume" in asked else None
        if not asked.get("stream"):
            self._break_off(request, 0)
            return web.json_response({"text": "".join(f"{n} " for n in wanted), "from": self.url})
        own = {"Content-Type": "text/event-stream", "X-Request-Id": f"answer-{len(self.requests)}"}
        response = web.StreamResponse(headers=own)
        await response.prepare(request)
        marked = request.headers.get(HEADER) == "1"
        try:
            if begun is None:
                await response.write(b"data: begin\n\n" + b":\n\n" * marked)
            for number in wanted[begun or 0 :]:
                if self.breaks_after and number >= self.breaks_after[0]:
                    self.breaks_after.pop(0)
                    if self.last_words:
                        await response.write(self.last_words)
                        return response
                    await response.write(f"data: {number} half an eve".encode())
                    self._abort(request)
                if number == self.hangs_at:
                    self.silent.set()
                    await asyncio.Event().wait()
                await response.write(f"data: {number} \n\n".encode() + f":0 {number}\n\n".encode() * marked)
                await asyncio.sleep(self.pause)
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.left.set()
            raise
        return response

    def _break_off(self, request: web.Request, number: int) -> None:
        if self.breaks_after and number >= self.breaks_after[0]:
            self.breaks_after.pop(0)
            self._abort(request)

    async def _gone(self, request: web.Request) -> web.Response:
        self._abort(request)

    @staticmethod
    def _abort(request: web.Request) -> NoReturn:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError
