"""Tell what is served, whether it is well, and what it did: models, health, metrics, version, trace."""

from typing import Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from unifiedserve import __version__
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.load import LoadReport
from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.requests.receive import check_model_name


class Model(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "unifiedserve"
    max_model_len: int


async def get_models(services: Services, request: Request) -> Response:
    """Return the list of the only model."""
    return json_response({"object": "list", "data": [_model(services)]})


async def get_model(services: Services, request: Request) -> Response:
    """Return the model of this name; raises RequestError 404."""
    check_model_name(request.path_params["id"], services.engine.model_name)
    return json_response(_model(services))


def _model(services: Services) -> Model:
    return Model(id=services.engine.model_name, created=services.started, max_model_len=services.engine.max_model_len)


async def get_health(services: Services, request: Request) -> Response:
    """Return 200 if all workers live, else 503."""
    healthy = services.engine.healthy
    return json_response({"status": "ok" if healthy else "a worker is down"}, 200 if healthy else 503)


async def get_ready(services: Services, request: Request) -> Response:
    """Return 200 if requests are taken now; raises RequestError 429 or 503."""
    if not services.engine.healthy:
        raise RequestError("a worker ended and is being replaced", ErrorKind.UNAVAILABLE, retry_after=1)
    services.engine.check_room()
    return json_response({"status": "ready"})


async def get_metrics(services: Services, request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(services.engine.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def get_version(services: Services, request: Request) -> Response:
    """Return the server's version."""
    return json_response({"version": __version__})


async def get_load(services: Services, request: Request) -> Response:
    """Return how busy the engine is."""
    engine = services.engine
    report = LoadReport(
        model=engine.model_name,
        version=__version__,
        started=services.started,
        healthy=engine.healthy,
        max_model_len=engine.max_model_len,
        load=engine.load(),
        stages=engine.config.machine.workers.stages,
    )
    return json_response(report)


async def get_trace(services: Services, request: Request) -> Response:
    """Return the stages' timeline, of one request if it is named."""
    return json_response(services.engine.observation.trace(request.query_params.get("request_id")))


ENDPOINTS = [
    Endpoint("GET", "/v1/models", "List the model that is served", get_models),
    Endpoint("GET", "/v1/models/{id:path}", "Describe a model", get_model, answer=Model),
    Endpoint("GET", "/health", "Check that all workers live: 200, else 503", get_health),
    Endpoint("GET", "/ready", "Check that a request would be accepted now: 200, else 429 or 503", get_ready),
    Endpoint("GET", "/metrics", "Read metrics in Prometheus' text format", get_metrics, media_type="text/plain"),
    Endpoint("GET", "/v1/load", "Read how busy the engine is, as routers do", get_load, answer=LoadReport),
    Endpoint("GET", "/version", "Read the server's version", get_version),
    Endpoint(
        "GET", "/debug/trace", "Read the stages' timeline as Chrome/Perfetto trace JSON", get_trace, query="request_id"
    ),
]
