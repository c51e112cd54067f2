"""Locate the encode units of a prompt: what they are parts of, and where their visual rows go."""

from collections.abc import Collection
from itertools import accumulate
from typing import NamedTuple

from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.wire import PrefillRequest, Reuse
from unifiedserve.scheduling.turn import UnitShape


class PromptUnits(NamedTuple):
    """List the units of all media of a prompt, in its order."""

    parts: list[tuple[MediaPlan, int]]  # each unit's medium, and which of its units it is
    rows: list[int]  # first visual row of each unit, and their total
    positions: list[int]  # of each visual row in the prompt

    @classmethod
    def of(cls, request: PrefillRequest, placeholders: Collection[int]) -> "PromptUnits":
        """Find a prompt's units by its `placeholders`; without any, its first token waits for all units already."""
        parts = [(plan, unit) for plan in request.media for unit in range(plan.units)]
        rows = [0, *accumulate(plan.unit_tokens(unit) for plan, unit in parts)]
        prompt = request.token_ids[: request.num_prompt] if parts else []
        positions = [i for i, token in enumerate(prompt) if token in placeholders]
        return cls(parts, rows, positions or [0] * rows[-1])

    def rows_of(self, unit: int) -> range:
        """Return the visual rows of a unit."""
        return range(self.rows[unit], self.rows[unit + 1])

    def covered(self, reuse: Reuse) -> int:
        """Return the end of the prefix that must be reused. Its media are not decoded."""
        return self.positions[self.rows[reuse.covered] - 1] + 1 if reuse.covered else 0

    def shapes(self, reuse: Reuse) -> list[UnitShape]:
        """Return what the scheduler sees of the units."""
        return [self._shape(unit, reuse) for unit in range(len(self.parts))]

    def _shape(self, unit: int, reuse: Reuse) -> UnitShape:
        tokens, position = len(self.rows_of(unit)), self.positions[self.rows[unit]]
        return UnitShape(tokens, position, encoded=unit < reuse.covered, cached=reuse.has(unit))
