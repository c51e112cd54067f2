"""The router's HTTP app: the API of its nodes."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import aiohttp
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unifiedserve import __version__
from unifiedserve.cluster.members import Member
from unifiedserve.cluster.router.asked import Asked, read_asked
from unifiedserve.cluster.router.holders import holder, kept_in
from unifiedserve.cluster.router.nodes import Nodes
from unifiedserve.cluster.router.plans import Plans
from unifiedserve.cluster.router.relay import Asking, Relay
from unifiedserve.cluster.routing import Policy
from unifiedserve.cluster.routing import Request as Routed
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.scheduling import Work
from unifiedserve.server.answers.event_stream import EventStream, ending, event
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.endpoint import json_response
from unifiedserve.server.error_bodies import error_body_at
from unifiedserve.server.errors import ERROR_HANDLERS, status_of

GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
_OTHERS = ("/v1/plan", "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/files")
_KEPT = ("/v1/files/{id:path}", "/v1/responses/{id:path}")
_MOST_BYTES = 1 << 30  # of a body, which is held until its answer has ended
_OF_A_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
_NO_WORK = Work(prompt_tokens=0)


class Router:
    """Answers requests by the nodes that serve. Belongs to the event loop of its app."""

    def __init__(self, policy: Policy, told: AsyncIterator[list[Member]]) -> None:
        """`told` are all members, again and again; the last ones stay."""
        self._policy = policy
        self._told = told
        self.http: aiohttp.ClientSession
        self.nodes: Nodes
        self.plans: Plans

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Know the nodes as long as this lasts."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=20)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self.http:
            self.nodes = Nodes(self.http, self._policy)
            self.plans = Plans(self.http, self.nodes)
            following = asyncio.create_task(self._follow())
            try:
                yield
            finally:
                following.cancel()
                self.nodes.close()

    async def _follow(self) -> None:
        async for members in self._told:
            self.nodes.follow(members)

    async def generate(self, request: Request) -> Response:
        """Have the node answer that brings the first token soonest."""
        body = await _body(request)
        asked = read_asked(body)
        self._check_model(asked)
        headers = _passed(request.headers)
        headers.setdefault("x-request-id", uuid.uuid4().hex)
        routed = await self.plans.request(request.url.path, asked, body, headers)
        return await self._relay(request, body, headers, asked, routed)

    async def pass_on(self, request: Request) -> Response:
        """Have any node answer."""
        body = await _body(request)
        asked = read_asked(body) if request.headers.get("content-type", "").startswith("application/json") else Asked()
        self._check_model(asked)
        whole = msgspec.structs.replace(asked, stream=False)
        return await self._relay(request, body, _passed(request.headers), whole, Routed(_NO_WORK, asked.key))

    async def kept(self, request: Request) -> Response:
        """Have the node answer that keeps what is asked for."""
        path, headers = _path_of(request), _passed(request.headers)
        node = await holder(self.http, self.nodes, request.url.path, headers)
        if node is None:
            raise RequestError(f"no node has {request.url.path}", ErrorKind.NOT_FOUND)
        async with self.http.request(request.method, node.member.url + path, headers=headers) as response:
            return Response(await response.read(), response.status, _passed(response.headers))

    async def models(self, request: Request) -> Response:
        """List the models of all pools."""
        return json_response({"object": "list", "data": [_model(name, report) for name, report in self._models()]})

    async def model(self, request: Request) -> Response:
        """Describe one of them; raises RequestError 404, or 503 while no node serves it."""
        name = request.path_params["id"]
        self._check_model(Asked(name))
        if (report := self.nodes.models.get(name)) is None:
            raise RequestError(f"no node serves {name} now", ErrorKind.UNAVAILABLE, retry_after=1)
        return json_response(_model(name, report))

    async def health(self, request: Request) -> Response:
        """Return 200: the router lives. Nodes are `ready`'s."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Return 200 if a node takes requests, else 503, with the nodes that cannot be reached."""
        away = self.nodes.unreachable()
        if self.nodes.models:
            return json_response({"status": "ready", "unreachable": away})
        return json_response({"status": "no node takes requests", "unreachable": away}, 503)

    async def list_nodes(self, request: Request) -> Response:
        """Tell how all nodes are."""
        return json_response(
            [
                {"name": node.member.name, "pool": node.member.pool, "url": node.member.url, "load": node.report,
                 "takes_requests": node.takes_requests}
                for node in self.nodes.each()
            ]
        )  # fmt: skip

    async def version(self, request: Request) -> Response:
        """Return the router's version."""
        return json_response({"version": __version__})

    def _models(self) -> list[tuple[str, Any]]:
        return sorted(self.nodes.models.items())

    def _check_model(self, asked: Asked) -> None:
        models = self.nodes.known_models
        if asked.model is not None and models and asked.model not in models:
            raise RequestError(
                f"The model `{asked.model[:200]}` does not exist; there are {', '.join(sorted(models))}.",
                ErrorKind.NOT_FOUND, param="model", code="model_not_found",
            )  # fmt: skip

    async def _relay(
        self, request: Request, body: bytes, headers: Mapping[str, str], asked: Asked, routed: Routed
    ) -> Response:
        if kept := kept_in(body):
            node = await holder(self.http, self.nodes, kept, headers)
            routed = routed if node is None else routed._replace(only=node.member.name)
        relay = Relay(
            self.http, self.nodes, self.plans, Asking(request.method, _path_of(request), body, headers, asked, routed)
        )
        try:
            head = await unless_disconnected(request.receive, relay.start())
        except BaseException:
            relay.close()
            raise
        passed = _passed(head.headers)
        if not relay.is_streamed:
            return Response(relay.whole, head.status, passed)
        stream = EventStream(ending(relay.body(), partial(_failure, request.url.path)), relay, passed)
        stream.status_code = head.status
        return stream


def create_app(router: Router) -> Starlette:
    """Return the app, whose lifespan is the router's."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with router.running():
            yield

    routes = [Route(path, router.generate, methods=["POST"]) for path in GENERATING]
    routes += [Route(path, router.pass_on, methods=["POST"]) for path in _OTHERS]
    routes += [Route(path, router.kept, methods=["GET", "DELETE"]) for path in _KEPT]
    routes += [
        Route("/v1/models", router.models),
        Route("/v1/models/{id:path}", router.model),
        Route("/v1/nodes", router.list_nodes),
        Route("/health", router.health),
        Route("/ready", router.ready),
        Route("/version", router.version),
    ]
    return Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=lifespan)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise RequestError(f"the body is larger than {_MOST_BYTES >> 20} MiB", ErrorKind.TOO_LARGE)
    return bytes(body)


def _path_of(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that go on: those of one connection do not."""
    return {name.lower(): value for name, value in headers.items() if name.lower() not in _OF_A_HOP}


def _model(name: str, report: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": report.started, "owned_by": "unifiedserve",
            "max_model_len": report.max_model_len}  # fmt: skip


def _failure(path: str, error: RequestError) -> bytes:
    """Return the last event of a stream that nobody goes on with."""
    named = b"" if path.endswith("completions") else b"event: error\n"
    return named + event(error_body_at(path, error, status_of(error)))
