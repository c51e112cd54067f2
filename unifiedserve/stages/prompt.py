"""A request between arrival and its first token, as the encode and prefill stages keep it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from unifiedserve.messages import Request
from unifiedserve.models.media import MediaPlan
from unifiedserve.scheduling import PrefillState, Unit


@dataclass(slots=True)
class Prompt:
    """The request, what the scheduler sees of it, and which part of which medium each encode unit is."""

    request: Request
    state: PrefillState
    parts: list[tuple[MediaPlan, int]]  # each unit's medium, and which of its units it is
    rows: list[int]  # first visual row of each unit, and their total
    covered: int = 0  # end of the prompt prefix that must be reused, because its media are not decoded
    patches: dict[int, list[int]] = field(default_factory=dict)  # unit -> pages of the patch buffer

    @classmethod
    def receive(
        cls,
        request: Request,
        placeholders: frozenset[int],
        kv_pages: int,
        visual_pages: Callable[[int], int],
        whole_units: bool = False,
    ) -> "Prompt":
        """Without `placeholders` for visual tokens the first token of the prompt waits for all units already."""
        parts = [(plan, unit) for plan in request.media for unit in range(plan.units)]
        tokens = [plan.unit_tokens(unit) for plan, unit in parts]
        rows = [0, *accumulate(tokens)]
        prompt = request.token_ids[: request.num_prompt] if parts else []
        positions = [i for i, token in enumerate(prompt) if token in placeholders] or [0] * rows[-1]
        units = [Unit(n, positions[row], visual_pages(n)) for n, row in zip(tokens, rows, strict=False)]
        reuse = request.reuse
        for unit in units[: reuse.covered]:
            unit.pages, unit.ready, unit.encoded = 0, True, True
        for number in reuse.units:
            units[number].ready = units[number].cached = True
        covered = positions[rows[reuse.covered] - 1] + 1 if reuse.covered else 0
        state = PrefillState(
            request.uid,
            request.arrival,
            len(request.token_ids),
            kv_pages,
            units,
            priority=request.priority,
            whole_units=whole_units,
        )
        return cls(request, state, parts, rows, covered)
