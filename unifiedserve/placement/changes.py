"""Change a placement, some of whose instances are about to host other stages."""

from dataclasses import dataclass
from typing import Literal

from unifiedserve.placement.instances import Instance, Placement, Stage


@dataclass(eq=False)
class RoleChange:
    """Track an instance on its way to other stages, since `began` (monotonic seconds).

    It drains until its old worker has no part in any request; then a new one starts.
    """

    before: Instance
    after: Instance
    began: float
    state: Literal["draining", "starting"] = "draining"


class ChangingPlacement:
    """Own the placement, and the changes that are under way."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement  # as the workers have been started
        self.changes = 0  # that were completed
        self._under_way: dict[str, RoleChange] = {}

    @property
    def open(self) -> Placement:
        """Return the placement without the instances that take no new requests."""
        return self.placement.without(self._under_way)

    @property
    def settled(self) -> Placement | None:
        """Return the placement; None while any instance changes."""
        return None if self._under_way else self.placement

    def start(self, before: Instance, after: Instance, now: float) -> RoleChange:
        """Let an instance that is to change take no new requests from now on (monotonic seconds)."""
        self._under_way[after.name] = change = RoleChange(before, after, now)
        return change

    def heirs(self, change: RoleChange) -> list[str]:
        """Return the hosts of decode in its memory that can continue an instance's answers."""
        if Stage.DECODE not in change.before.stages:
            return []
        return [name for name in self.open.hosts(Stage.DECODE) if self.open.memory_of(name) == change.before.memory]

    def goes_on(self, change: RoleChange) -> bool:
        """Return whether a change is under way: neither completed, nor overtaken by a restart of all workers."""
        return self._under_way.get(change.after.name) is change

    def drained(self, change: RoleChange) -> None:
        """Note that the old worker has no part in any request: its successor is started now."""
        change.state = "starting"
        self.placement = self.placement.changed(change.after)

    def end(self, change: RoleChange) -> None:
        """Note that the new worker is up: it takes requests."""
        del self._under_way[change.after.name]
        self.changes += 1

    def restart(self) -> None:
        """Note that all workers start again, each with the stages that were wanted last."""
        for change in self._under_way.values():
            self.placement = self.placement.changed(change.after)
        self.changes += len(self._under_way)
        self._under_way.clear()
