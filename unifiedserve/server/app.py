"""The HTTP API of an engine."""

import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.types import Lifespan

from unifiedserve.config import MIB
from unifiedserve.errors import ConfigError
from unifiedserve.server.chat import route as chat
from unifiedserve.server.completions import route as completions
from unifiedserve.server.embeddings import route as embeddings
from unifiedserve.server.endpoint import Endpoint, Services
from unifiedserve.server.errors import ERROR_HANDLERS
from unifiedserve.server.events import route as events
from unifiedserve.server.files import route as files
from unifiedserve.server.media.fetcher import MediaFetcher
from unifiedserve.server.media.file_store import FileStore
from unifiedserve.server.openapi import description_routes
from unifiedserve.server.page import page_routes
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.body import Bodies
from unifiedserve.server.responses import route as responses
from unifiedserve.server.status import route as status
from unifiedserve.server.tokens import route as tokens

COMPARED_PATH = "/monolithic"
OF_AN_ENGINE = [
    chat.ENDPOINT,
    responses.ENDPOINT,
    completions.ENDPOINT,
    embeddings.ENDPOINT,
    *tokens.ENDPOINTS,
    *status.ENDPOINTS,
    events.ENDPOINT,
]


def create_app(engine: ServingEngine, compared: ServingEngine | None = None) -> Starlette:
    """Return the app, whose lifespan starts and stops the engines; `compared` is served below `COMPARED_PATH`."""
    store = FileStore(engine.config)
    bodies = Bodies(engine.config.max_body_mib * MIB, engine.config.body_timeout)
    services = Services(engine, store, MediaFetcher(engine.config, store), bodies, int(time.time()))
    routes = _routes("UnifiedServe", [*OF_AN_ENGINE, *files.ENDPOINTS], services)
    if compared is not None:
        other = _routes("UnifiedServe, monolithic", OF_AN_ENGINE, services._replace(engine=compared))
        routes.append(Mount(COMPARED_PATH, _starlette(other)))
    routes += page_routes(engine, COMPARED_PATH if compared is not None else "")
    return _starlette(routes, _lifespan(services, compared))


def _routes(title: str, endpoints: Sequence[Endpoint], services: Services) -> list[BaseRoute]:
    return [*(endpoint.route(services) for endpoint in endpoints), *description_routes(title, endpoints)]


def _starlette(routes: Sequence[BaseRoute], lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=lifespan)
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
    try:
        await engine.start()
    except ConfigError as error:
        raise ConfigError(f"--compare, which starts a second engine: {error}") from error
