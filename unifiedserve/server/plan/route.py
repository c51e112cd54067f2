"""Serve POST /v1/plan: what would be done for a chat request, which is not done."""

from starlette.requests import Request
from starlette.responses import Response

from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.chat.route import chat_work
from unifiedserve.server.disconnect import unless_disconnected
from unifiedserve.server.endpoint import Endpoint, Services, json_response
from unifiedserve.server.plan.reply import PlanReply, plan_reply
from unifiedserve.server.requests.receive import received, request_id


async def post_plan(services: Services, request: Request) -> Response:
    """Plan a conversation's answer; raises RequestError as /v1/chat/completions does."""
    engine = services.engine
    async with received(services, request, ChatRequest) as chat:
        work, _ = await chat_work(request, chat, request_id(request, "plan-"), services)
    work.tell_media = True
    return json_response(plan_reply(await unless_disconnected(request.receive, engine.plan(work)), engine.model_name))


ENDPOINT = Endpoint(
    "POST",
    "/v1/plan",
    "Tell what the model would see of a chat request, what that takes and when it would begin to answer",
    post_plan,
    body=ChatRequest,
    answer=PlanReply,
)
