"""Serve the API of the router's nodes over HTTP."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from yarl import URL

from unifiedserve import __version__
from unifiedserve.cluster.members import Membership
from unifiedserve.cluster.router.asked import Asked, read_asked
from unifiedserve.cluster.router.bodies import Bodies
from unifiedserve.cluster.router.failures import answering, last_event
from unifiedserve.cluster.router.holders import holder
from unifiedserve.cluster.router.metrics import RouterMetrics
from unifiedserve.cluster.router.nodes import Nodes
from unifiedserve.cluster.router.origins import Origins, is_allowed
from unifiedserve.cluster.router.plans import Plans
from unifiedserve.cluster.router.relay import Asking, Head, Relay
from unifiedserve.cluster.router.timeline import RouterTimeline
from unifiedserve.cluster.router.trip import Trip
from unifiedserve.cluster.routing import Policy
from unifiedserve.cluster.routing import Request as Routed
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.encoding import KEY_HEADER, NODES_HEADER
from unifiedserve.scheduling import Work
from unifiedserve.server.access.hosts import Hosts
from unifiedserve.server.answers.marks import BEGUN
from unifiedserve.server.errors import streaming_error

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_log = logging.getLogger(__name__)

GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
_FILES = "/v1/files"
_OTHERS = ("/v1/plan", "/v1/messages/count_tokens", "/tokenize", "/detokenize", _FILES)
_KEPT = ("/v1/files/{id:.+}", "/v1/responses/{id:.+}")
_OF_A_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
_STAY = _OF_A_HOP | {NODES_HEADER, KEY_HEADER, BEGUN}  # these three are of routers, not of clients
_STAY_OF_A_REQUEST = _STAY | {"content-encoding", "expect"}  # a router has read and decompressed its body
_NO_WORK = Work(prompt_tokens=0)
_LARGE = 1 << 20  # bytes of a body


class Router:
    """Answer requests by the nodes that serve. Belongs to the event loop of its app."""

    def __init__(self, policy: Policy, told: AsyncIterator[Membership], tracer: "Tracer | None" = None) -> None:
        """Route to the members that `told` yields again and again; the last ones stay.

        `tracer` makes spans, if there is one.
        """
        self._policy = policy
        self._told = told
        self._tracer = tracer
        self.bodies = Bodies()
        self.metrics = RouterMetrics(lambda: self.nodes, self.bodies)
        self.http: aiohttp.ClientSession
        self.nodes: Nodes
        self.plans: Plans
        self.timeline: RouterTimeline

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Know the nodes as long as this lasts."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=20)
        cookies = aiohttp.DummyCookieJar()  # those of one client are not for another
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=cookies) as self.http:
            self.nodes = Nodes(self.http, self._policy)
            self.plans = Plans(self.http, self.nodes)
            self.timeline = RouterTimeline(self.http, self.nodes)
            following = asyncio.create_task(self._follow())
            try:
                yield
            finally:
                following.cancel()
                self.nodes.close()

    async def _follow(self) -> None:
        try:
            async for membership in self._told:
                self.nodes.follow(membership.members, membership.asleep)
        except Exception:
            _log.exception("the members stay as they are: nothing more is heard of them")

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Have the node answer that brings the first token soonest."""
        async with self.bodies.held(request) as body:
            asked = await _asked(body)
            self._check_model(asked)
            headers = _asked_with(request)
            headers.setdefault("x-request-id", secrets.token_hex(16))
            routed = await self.plans.request(request.path, asked, body, headers)
            return await self._relay(request, body, headers, asked, routed)

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Have any node answer."""
        is_json = request.headers.get("content-type", "").startswith("application/json")
        async with self.bodies.held(request) as body:
            asked = await _asked(body) if is_json else Asked()
            if request.path == _FILES:  # whose bodies name no model
                asked = Asked(request.query.get("model"))
            self._check_model(asked)
            whole = msgspec.structs.replace(asked, stream=False)
            return await self._relay(request, body, _asked_with(request), whole, Routed(_NO_WORK, asked.key))

    async def kept(self, request: web.Request) -> web.StreamResponse:
        """Have the node answer that keeps what is asked for."""
        path, headers = str(request.rel_url), _asked_with(request)
        node = await holder(self.http, self.nodes, request.path, headers)
        if node is None:
            raise RequestError(f"no node has {request.path}", ErrorKind.NOT_FOUND)
        url = URL(node.member.url + path, encoded=True)
        try:
            async with self.http.request(request.method, url, headers=headers) as response:
                passed = _passed(response.headers)
                return web.Response(body=await response.read(), status=response.status, headers=passed)
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = f"{node.member.name}, which has {request.path}, broke off"
            raise RequestError(reason, ErrorKind.UNAVAILABLE, retry_after=1) from error

    async def models(self, request: web.Request) -> web.StreamResponse:
        """List the models of all pools."""
        listed = sorted(self.nodes.listed_models.items())
        return _json({"object": "list", "data": [_model(name, report) for name, report in listed]})

    async def model(self, request: web.Request) -> web.StreamResponse:
        """Describe one of them; raises RequestError 404, or 503 while no node serves it."""
        name = request.match_info["id"]
        self._check_model(Asked(name))
        if (report := self.nodes.listed_models.get(name)) is None:
            raise RequestError(f"no node serves {name} now", ErrorKind.UNAVAILABLE, retry_after=1)
        return _json(_model(name, report))

    async def health(self, request: web.Request) -> web.StreamResponse:
        """Return 200: the router lives. `waiting` are requests that no node can take, `awaited` pools to wake."""
        return _json({"status": "ok", "waiting": self.nodes.waiting, "awaited": sorted(self.nodes.awaited)})

    async def ready(self, request: web.Request) -> web.StreamResponse:
        """Return 200 if a node takes requests, or would wake for one. Else it is 503, with the nodes out of reach."""
        away = self.nodes.unreachable()
        if self.nodes.models:
            return _json({"status": "ready", "unreachable": away})
        if self.nodes.has_asleep:
            return _json({"status": "asleep", "unreachable": away})
        return _json({"status": "no node takes requests", "unreachable": away}, 503)

    async def list_nodes(self, request: web.Request) -> web.StreamResponse:
        """Tell how all nodes are."""
        return _json(
            [
                {"name": node.member.name, "pool": node.member.pool, "url": node.member.url, "load": node.report,
                 "takes_requests": node.takes_requests}
                for node in self.nodes.each()
            ]
        )  # fmt: skip

    async def read_metrics(self, request: web.Request) -> web.StreamResponse:
        """Return the router's own metrics in Prometheus' text format."""
        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """Return the timeline of a request over its nodes."""
        if not (id := request.query.get("request_id")):
            raise RequestError("a router draws one request at a time: name it, /debug/trace?request_id=ID")
        return _json(await self.timeline.of(id, _asked_with(request)))

    async def version(self, request: web.Request) -> web.StreamResponse:
        """Return the router's version."""
        return _json({"version": __version__})

    def _check_model(self, asked: Asked) -> None:
        models = self.nodes.known_models
        if asked.model is not None and models and asked.model not in models and not self.nodes.others_may_wake:
            raise RequestError(
                f"The model `{asked.model[:200]}` does not exist; there are {', '.join(sorted(models))}.",
                ErrorKind.NOT_FOUND, param="model", code="model_not_found",
            )  # fmt: skip

    async def _relay(
        self, request: web.Request, body: bytes, headers: Mapping[str, str], asked: Asked, routed: Routed
    ) -> web.StreamResponse:
        if asked.kept:
            node = await holder(self.http, self.nodes, asked.kept, headers)
            if node is not None and node.report is not None:
                _check_holder(asked.kept, node.report.model, asked)
                asked = msgspec.structs.replace(asked, model=node.report.model)
                routed = routed._replace(only=node.member.name)
        asking = Asking(request.method, str(request.rel_url), body, headers, asked, routed)
        trip = Trip(self.metrics, self.timeline, self._tracer, request.path, headers)
        relay = Relay(self.http, self.nodes, self.plans, asking, trip)
        try:
            head = await relay.start()
            if not relay.is_streamed:
                return web.Response(body=relay.whole, status=head.status, headers=_passed(head.headers))
            return await _stream(request, head, relay)
        finally:
            relay.close()
            trip.end()


def create_app(router: Router, hosts: Hosts, origins: Origins) -> web.Application:
    """Return the app, to be served while the router runs.

    It answers requests to these hosts, and lets pages of these origins use it.
    """
    app = web.Application(middlewares=[answering(hosts), origins.answering()])
    app.on_response_prepare.append(_name_server)
    app.on_response_prepare.append(origins.label)
    for path in GENERATING:
        app.router.add_post(path, router.generate)
    for path in _OTHERS:
        app.router.add_post(path, router.pass_on)
    for path in _KEPT:
        app.router.add_get(path, router.kept)
        app.router.add_delete(path, router.kept)
    app.router.add_get("/v1/models", router.models)
    app.router.add_get("/v1/models/{id:.+}", router.model)
    app.router.add_get("/v1/nodes", router.list_nodes)
    app.router.add_get("/health", router.health)
    app.router.add_get("/ready", router.ready)
    app.router.add_get("/metrics", router.read_metrics)
    app.router.add_get("/debug/trace", router.trace)
    app.router.add_get("/version", router.version)
    return app


async def _name_server(request: web.Request, response: web.StreamResponse) -> None:
    """Name the server without the versions of what it is made of."""
    response.headers["Server"] = "unifiedserve"


async def _stream(request: web.Request, head: Head, relay: Relay) -> web.StreamResponse:
    """Send the events of an answer as they come."""
    response = web.StreamResponse(status=head.status, headers=_passed(head.headers))
    await response.prepare(request)
    try:
        await relay.carry(response.write)
    except ConnectionError:
        raise  # the client has gone
    except Exception as error:
        await response.write(last_event(request.path, streaming_error(error)))
    await response.write_eof()
    return response


async def _asked(body: bytes) -> Asked:
    """Return what a body asks for. Large ones are read beside the event loop."""
    return read_asked(body) if len(body) <= _LARGE else await asyncio.to_thread(read_asked, body)


def _asked_with(request: web.Request) -> dict[str, str]:
    """Return a client's headers that go on to nodes."""
    stay = _STAY_OF_A_REQUEST | {"origin"} if is_allowed(request) else _STAY_OF_A_REQUEST  # nodes know other origins
    return _passed(request.headers, stay)


def _passed(headers: Mapping[str, str], stay: Collection[str] = _STAY) -> dict[str, str]:
    """Return the headers that go on: those of one connection do not, nor those that only routers may send."""
    return {low: value for name, value in headers.items() if (low := name.lower()) not in stay}


def _check_holder(kept: str, model: str, asked: Asked) -> None:
    """Raise RequestError 404 if a node of another model keeps what a request names."""
    if asked.model is None or asked.model == model:
        return
    advice = f": upload it for this one, with POST {_FILES}?model={asked.model}" if kept.startswith(_FILES) else ""
    raise RequestError(
        f"{kept.rpartition('/')[2]} is kept by a node that serves `{model}`, not `{asked.model}`{advice}.",
        ErrorKind.NOT_FOUND,
    )


def _model(name: str, report: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": report.started, "owned_by": "unifiedserve",
            "max_model_len": report.max_model_len}  # fmt: skip


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
