"""Serve GET /v1/events: a viewer from its arrival to its end."""

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.answers.event_stream import EventStream
from unifiedserve.server.endpoint import EVENTS, Endpoint, Services
from unifiedserve.server.events.live_events import LiveEvents
from unifiedserve.server.requests.receive import check_origin, viewer_of


async def get_events(services: Services, request: Request) -> Response:
    """Return what the stages do, live; raises RequestError."""
    check_origin(services, request)
    events = LiveEvents(services.engine, viewer_of(request, request.query_params.get("viewer")))
    return EventStream(events, events)


ENDPOINT = Endpoint(
    "GET",
    "/v1/events",
    "Watch the stages at work, as server-sent events",
    get_events,
    query="viewer",
    media_type=EVENTS,
)
