"""Serve GET and POST /v1/placement: which workers host which stages, now and from soon on."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.placement.request import PlacementReply, RoleRequest
from unifiedserve.server.requests.receive import TEXT_BYTES, received


async def get_placement(services: Services, request: Request) -> Response:
    """Return all workers and the stages that they host."""
    return json_response(PlacementReply(services.engine.observation.instances()))


async def post_placement(services: Services, request: Request) -> Response:
    """Begin to give a worker other stages, and return all workers at once; raises RequestError 400, 404, 409 or 503."""
    async with received(services, request, RoleRequest, TEXT_BYTES) as asked:
        services.engine.change_role(asked.instance, asked.stages)
    return json_response(PlacementReply(services.engine.observation.instances()), HTTPStatus.ACCEPTED)


_PATH = "/v1/placement"
ENDPOINTS = [
    Endpoint("GET", _PATH, "List the workers and the stages that they host", get_placement, answer=PlacementReply),
    Endpoint(
        "POST",
        _PATH,
        "Give a worker other stages once it has no requests, while the others serve; GET tells when it does",
        post_placement,
        RoleRequest,
        PlacementReply,
    ),
]
