"""A request between arrival and its first token, as the encode and prefill stages keep it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from unifiedserve.messages import Request
from unifiedserve.models.media import MediaPlan
from unifiedserve.scheduling import PrefillState, Unit


@dataclass(slots=True)
class Prompt:
    """The request, what the scheduler sees of it, and which media item each encode unit belongs to."""

    request: Request
    state: PrefillState
    plans: list[MediaPlan]  # of each unit
    rows: list[int]  # first visual row of each unit, and their total
    patches: dict[int, list[int]] = field(default_factory=dict)  # unit -> pages of the patch buffer

    @classmethod
    def receive(
        cls,
        request: Request,
        placeholders: frozenset[int],
        kv_pages: int,
        visual_pages: Callable[[int], int],
    ) -> "Prompt":
        plans = [plan for plan in request.media for _ in range(plan.units)]
        rows = [0]
        for plan in plans:
            rows.append(rows[-1] + plan.tokens_per_unit)
        prompt = request.token_ids[: request.num_prompt] if plans else []
        positions = [i for i, token in enumerate(prompt) if token in placeholders]
        units = [
            Unit(plan.tokens_per_unit, positions[row], visual_pages(plan.tokens_per_unit))
            for plan, row in zip(plans, rows, strict=False)
        ]
        state = PrefillState(request.uid, request.arrival, len(request.token_ids), kv_pages, units)
        return cls(request, state, plans, rows)
