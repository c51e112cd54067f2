"""Track which stages each worker hosts, and which workers are about to host others."""

import time
from collections.abc import Mapping

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.device_room import check_role
from unifiedserve.engine.resources import check_sandbox
from unifiedserve.errors import ConfigError, ErrorKind, RequestError
from unifiedserve.memory.shared import MemoryLayout
from unifiedserve.messages.seen import SeenInstance
from unifiedserve.placement import ChangingPlacement, Instance, Placement, RoleChange, Stage, letters_of, stages_of


class Roles(ChangingPlacement):
    """Change what each worker hosts, as clients ask for it. Belongs to the engine's event loop."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config.machine.workers)
        self._config = config
        self._absent: set[str] = set()

    @property
    def open(self) -> Placement:
        """Return the placement without the instances that take no new requests."""
        return super().open.without(self._absent)

    @property
    def settled(self) -> Placement | None:
        """Return the placement; None while any instance changes, or is without a worker."""
        return None if self._absent else super().settled

    def restart(self) -> None:
        """Note that all workers start again, each with the stages that were wanted last."""
        super().restart()
        self._absent.clear()

    def handles_media(self, name: str) -> bool:
        """Tell whether an instance decodes or encodes media."""
        return not {Stage.VISION, Stage.ENCODE}.isdisjoint(self._instance(name).stages)

    def leave(self, name: str) -> None:
        """Note that an instance has no worker: it takes no new requests."""
        self._absent.add(name)

    def come_back(self, name: str) -> None:
        """Note that an instance has a worker again."""
        self._absent.discard(name)

    def seen(self) -> list[SeenInstance]:
        """Return what clients are told of each instance."""
        return [self._seen(instance) for instance in self.placement.instances]

    def begin(
        self, name: str, letters: str, memories: Mapping[str, MemoryLayout], *, keeps_visual: bool = False
    ) -> RoleChange | None:
        """Give an instance the stages with these letters; None if it hosts just these.

        It takes no new requests from now on. Raises RequestError if that cannot be: its memory has what it got at the
        start, and visual tokens that answers keep (`keeps_visual`) must not come back to where they were encoded.
        """
        before = self._instance(name)
        after = msgspec.structs.replace(before, stages=_stages(letters))
        if under_way := self._under_way.get(name):
            raise _conflict(f"the worker {name} is changing to {letters_of(under_way.after.stages)} already")
        if after.stages == before.stages:
            return None
        self._check_hosts(name)
        self._check_room(after, memories[after.memory])
        if keeps_visual:
            self._check_ways(after)
        return self.start(before, after, time.monotonic())

    def _instance(self, name: str) -> Instance:
        for instance in self.placement.instances:
            if instance.name == name:
                return instance
        known = ", ".join(instance.name for instance in self.placement.instances)
        raise RequestError(
            f"there is no worker {name!r}; the workers are {known}", ErrorKind.NOT_FOUND, param="instance"
        )

    def _check_hosts(self, name: str) -> None:
        """Raise RequestError if the other instances that take requests do not host all stages."""
        others = self.placement.without({*self._under_way, name})
        for stage in Stage:
            if not others.hosts(stage):
                raise _conflict(f"{name} is the last worker that hosts {stage}: give {stage} to another one before")

    def _check_room(self, after: Instance, memory: MemoryLayout) -> None:
        if lacking := [stage for stage in after.stages if stage not in memory.stages]:
            raise _conflict(
                f"{after.name} cannot host {' and '.join(lacking)}: "
                f"its memory {after.memory} was laid out at the start for {' and '.join(memory.stages)}"
            )
        placement = self.placement.changed(after)
        try:
            check_sandbox(self._config, placement)
            if memory.place != CPU.place:  # whose memory was divided among the workers at the start
                check_role(self._config.machine.workers, placement, after.memory)
        except ConfigError as error:
            raise _conflict(str(error)) from error

    def _check_ways(self, after: Instance) -> None:
        """Raise RequestError if visual tokens could come back to where they were encoded: pages could run out there."""
        now = wanted = self.placement
        for change in self._under_way.values():
            wanted = wanted.changed(change.after)
        if now.changed(after).sends_back or wanted.changed(after).sends_back:
            raise _conflict(
                f"{after.name} cannot host {letters_of(after.stages)}: answers of this model hold visual tokens, which "
                "would come back to the memory where they were encoded, and wait there for those that are to leave it"
            )

    def _seen(self, instance: Instance) -> SeenInstance:
        change = self._under_way.get(instance.name)
        return SeenInstance(
            name=instance.name,
            stages=list(instance.stages),
            cores=list(instance.cores),
            memory=instance.memory,
            state=change.state if change else "serving",
            becomes=list(change.after.stages) if change else None,
        )


def _stages(letters: str) -> tuple[Stage, ...]:
    try:
        return stages_of(letters.lower())
    except ConfigError as error:
        raise RequestError(str(error), param="stages") from error


def _conflict(message: str) -> RequestError:
    return RequestError(message, ErrorKind.CONFLICT)
