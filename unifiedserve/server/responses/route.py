"""POST /v1/responses: a conversation in items, answered as the chat that it is."""

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.answers.respond import respond_named
from unifiedserve.server.chat.route import begin_chat
from unifiedserve.server.endpoint import Endpoint, Services
from unifiedserve.server.requests.receive import received, request_id
from unifiedserve.server.requests.renaming import naming, naming_in
from unifiedserve.server.responses.conversion import chat_request, response_param
from unifiedserve.server.responses.objects import ResponseEvent, ResponseObject
from unifiedserve.server.responses.reply import ResponsesReply
from unifiedserve.server.responses.request import ResponsesRequest


async def post_responses(services: Services, request: Request) -> Response:
    """Answer a conversation in items; raises RequestError that names the item's field."""
    async with received(services, request, ResponsesRequest) as asked:
        id = request_id(request, "resp_")
        with naming(response_param):
            deltas, chat_reply = await begin_chat(request, chat_request(asked), id, services)
    reply = ResponsesReply(asked, id, services.engine.model_name, chat_reply)
    asked.input = ""  # media in base64 must not live as long as the answer
    return await respond_named(request, id, naming_in(deltas, response_param), reply, stream=bool(asked.stream))


ENDPOINT = Endpoint(
    "POST",
    "/v1/responses",
    "Answer a conversation, in items",
    post_responses,
    body=ResponsesRequest,
    answer=ResponseObject,
    event=ResponseEvent,
)
