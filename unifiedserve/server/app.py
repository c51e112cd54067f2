"""Build the HTTP API of an engine."""

import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Mount
from starlette.types import Lifespan

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.observe.start import begin_step
from unifiedserve.server.access.gate import Gate
from unifiedserve.server.access.hosts import Hosts
from unifiedserve.server.access.keys import Keys
from unifiedserve.server.access.limits import Limits
from unifiedserve.server.access.log import RequestLog
from unifiedserve.server.access.targets import Targets
from unifiedserve.server.anthropic import route as anthropic
from unifiedserve.server.chat import route as chat
from unifiedserve.server.completions import route as completions
from unifiedserve.server.embeddings import route as embeddings
from unifiedserve.server.encode.route import encode_routes
from unifiedserve.server.endpoint import Endpoint, Services, endpoint_routes
from unifiedserve.server.errors import ERROR_HANDLERS
from unifiedserve.server.events import route as events
from unifiedserve.server.files import route as files
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.media.file_store import FileStore
from unifiedserve.server.openapi import description_routes
from unifiedserve.server.page import page_routes
from unifiedserve.server.placement import route as placement
from unifiedserve.server.plan import route as plan
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.body import Bodies
from unifiedserve.server.responses import route as responses
from unifiedserve.server.responses.store import ResponseStore
from unifiedserve.server.status import route as status
from unifiedserve.server.tokens import route as tokens

COMPARED_PATH = "/monolithic"
OF_AN_ENGINE = [
    chat.ENDPOINT,
    plan.ENDPOINT,
    *responses.ENDPOINTS,
    *anthropic.ENDPOINTS,
    completions.ENDPOINT,
    embeddings.ENDPOINT,
    *tokens.ENDPOINTS,
    *status.ENDPOINTS,
    *placement.ENDPOINTS,
    events.ENDPOINT,
]


def create_app(engine: ServingEngine, compared: ServingEngine | None = None, keys: Keys | None = None) -> Starlette:
    """Return the app, whose lifespan starts and stops the engines.

    `compared` is served below `COMPARED_PATH`. Callers that show none of the `keys` are refused; None: those that the
    configuration names. Raises ConfigError for bad ones.
    """
    config = engine.config
    uploaded = FileStore(config)
    bodies = Bodies(config.server.max_body_mib * MIB, config.server.body_timeout)
    fetcher = MediaFetcher(config, uploaded)
    services = Services(engine, uploaded, fetcher, bodies, ResponseStore(config), int(time.time()))
    routes = _routes("UnifiedServe", [*OF_AN_ENGINE, *files.ENDPOINTS], services)
    if compared is not None:
        other = _routes("UnifiedServe, monolithic", OF_AN_ENGINE, services._replace(engine=compared))
        routes.append(Mount(COMPARED_PATH, _starlette(other)))
    routes += encode_routes(services)
    routes += page_routes(engine, COMPARED_PATH if compared is not None else "")
    guard = _guard(config, Keys(config.server.api_key_file) if keys is None else keys)
    return _starlette(routes, _lifespan(services, compared), guard)


def _guard(config: EngineConfig, keys: Keys) -> list[Middleware]:
    gate = Middleware(
        Gate,
        hosts=Hosts(config.server.host, config.server.allowed_hosts),
        keys=keys,
        limits=Limits(config.server.requests_per_minute, config.server.requests_at_once),
    )
    outside = [Middleware(Targets), Middleware(RequestLog)]
    if not config.server.cors_origins:
        return [*outside, gate]
    allowed: dict[str, Any] = {name: ["*"] for name in ("allow_methods", "allow_headers", "expose_headers")}
    return [*outside, Middleware(CORSMiddleware, allow_origins=config.server.cors_origins, **allowed), gate]


def _routes(title: str, endpoints: Sequence[Endpoint], services: Services) -> list[BaseRoute]:
    return [*endpoint_routes(endpoints, services), *description_routes(title, endpoints)]


def _starlette(
    routes: Sequence[BaseRoute], lifespan: Lifespan[Starlette] | None = None, guard: Sequence[Middleware] = ()
) -> Starlette:
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=lifespan, middleware=guard)
    app.router.redirect_slashes = False
    return app


def _lifespan(services: Services, compared: ServingEngine | None) -> Lifespan[Starlette]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await services.engine.start()
            stack.push_async_callback(services.engine.stop)
            if compared is not None:
                await _start_second(compared)
                stack.push_async_callback(compared.stop)
            stack.callback(services.files.close)
            await stack.enter_async_context(services.fetcher)
            yield

    return lifespan


async def _start_second(engine: ServingEngine) -> None:
    begin_step("starting the second engine (--compare)")
    try:
        await engine.start()
    except ConfigError as error:
        raise ConfigError(f"--compare, which starts a second engine: {error}") from error
