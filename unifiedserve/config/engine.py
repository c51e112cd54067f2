"""Group all options of the daemon."""

from math import isfinite
from typing import Any

import msgspec

from unifiedserve.config.checkpoint import CheckpointOptions
from unifiedserve.config.machine import MachineOptions
from unifiedserve.config.media import MediaOptions
from unifiedserve.config.memory import MemoryOptions
from unifiedserve.config.scheduling import SchedulingOptions
from unifiedserve.config.server import ServerOptions
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the daemon's options. Sizes are in MiB, times in seconds unless the description names another unit."""

    checkpoint: CheckpointOptions = CheckpointOptions()
    machine: MachineOptions = MachineOptions()
    memory: MemoryOptions = MemoryOptions()
    scheduling: SchedulingOptions = SchedulingOptions()
    media: MediaOptions = MediaOptions()
    server: ServerOptions = ServerOptions()

    @classmethod
    def of(cls, **options: Any) -> "EngineConfig":
        """Return the options with these, by their names on the command line. Raises TypeError for one that is none."""
        return cls().changed(**options)

    def changed(self, **options: Any) -> "EngineConfig":
        """Return the same options but for these. Raises TypeError for one that is none."""
        groups = {name: getattr(self, name) for name in self.__struct_fields__}
        for option, value in options.items():
            name = next((name for name, group in groups.items() if option in group.__struct_fields__), None)
            if name is None:
                raise TypeError(f"there is no option {option!r}")
            groups[name] = msgspec.structs.replace(groups[name], **{option: value})
        return EngineConfig(**groups)

    @property
    def given(self) -> dict[str, Any]:
        """Return the options that are not as by default, by their names."""
        groups = [getattr(self, name) for name in self.__struct_fields__]
        return {
            field.name: value
            for group in groups
            for field in msgspec.structs.fields(group)
            if (value := getattr(group, field.name)) != field.default
        }

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other, and for numbers without an end."""
        for option, value in self.given.items():
            if isinstance(value, float) and not isfinite(value):
                raise ConfigError(f"--{option.replace('_', '-')} {value}: must be a finite number")
        if self.scheduling.naive and self.machine.placement != "monolithic":
            raise ConfigError("--naive needs --placement monolithic: give both")
        workers = self.machine.workers.instances
        mixed = (each.name for each in workers if Stage.DECODE in each.stages and len(each.stages) > 1)
        if self.scheduling.scheduling == "prefill-encode" and (name := next(mixed, None)):
            raise ConfigError(
                f"--scheduling prefill-encode needs decode in a process of its own, unlike {name}: "
                "use --placement shared"
            )
        if self.scheduling.dual_streams == "on" and not any(each.has_both_models for each in workers):
            raise ConfigError(
                "--dual-streams on needs a worker for encode and prefill or decode: "
                f"--placement {self.machine.placement} has none, so leave one out"
            )
        for group in (self.checkpoint, self.machine, self.scheduling, self.media):
            group.check()

    @property
    def compared(self) -> "EngineConfig | None":
        """Return the options of the second engine, if one is to be compared with."""
        if not self.machine.compare:
            return None
        own = {"placement": "monolithic", "memories": "placed", "irp": "auto", "roles": "fixed"}
        return self.changed(**own, compare=False, trace="", record="")
