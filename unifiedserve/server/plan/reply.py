"""Define what clients of /v1/plan get."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.messages.seen import RequestPages, RequestPlan, SeenMedium

Milliseconds = Annotated[float, Meta(description="Milliseconds from now to the first token")]


class PlanReply(msgspec.Struct, kw_only=True):
    """Tell what a chat request would take, and its first token's expected time. It is null where unknown."""

    object: Literal["plan"] = "plan"
    model: str
    prompt_tokens: int
    max_tokens: int
    pages: RequestPages
    expected_ttft: Milliseconds | None
    media: list[SeenMedium]


def plan_reply(plan: RequestPlan, model: str) -> PlanReply:
    """Return a plan as clients get it."""
    seconds = plan.expected_ttft
    return PlanReply(
        model=model,
        prompt_tokens=plan.prompt_tokens,
        max_tokens=plan.max_tokens,
        pages=plan.pages,
        expected_ttft=None if seconds is None else round(seconds * 1000, 1),
        media=plan.media,
    )
