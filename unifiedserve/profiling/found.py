"""Hold what was measured so far."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from unifiedserve.scheduling.simulation import StageCosts


class Found(NamedTuple):
    """Hold costs (seconds) by `StageCosts`' names, and the spread of their measurements.

    The spread goes by what they were of.
    """

    costs: Mapping[str, float] = {}
    spread: Mapping[str, float] = {}

    def with_more(self, other: "Found") -> "Found":
        """Return both."""
        return Found({**self.costs, **other.costs}, {**self.spread, **other.spread})

    def stage_costs(self, **more: Any) -> StageCosts:
        """Return the costs, and some `more`."""
        return msgspec.convert({**self.costs, **more}, StageCosts)
