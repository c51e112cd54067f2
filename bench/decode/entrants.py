"""Who takes part in a run, and in which versions."""

import dataclasses
import subprocess
from importlib import metadata
from pathlib import Path

from measure import modules_of
from peers import ENVIRONMENTS, FLOOR, FLOOR_ON_GPU, Contestant, Environment
from tasks import Task

BEFORE = "FlashCodec before"


@dataclasses.dataclass(frozen=True)
class Entrants:
    """The contestants of each task: FlashCodec, that of the interpreter `before`, and `peers` (None: all)."""

    device: str
    peers: list[str] | None
    before: str | None

    @property
    def floor(self) -> Contestant:
        return FLOOR_ON_GPU if self.device == "cuda" else FLOOR

    def of(self, task: Task) -> dict[str, Contestant]:
        """Return a task's contestants by name."""
        everyone = task.contestants(self.device)
        found = {"FlashCodec": everyone["FlashCodec"]}
        if self.before is not None:
            found[BEFORE] = dataclasses.replace(found["FlashCodec"], python=self.before, note="an earlier one")
        return found | {name: everyone[name] for name in everyone if self.peers is None or name in self.peers}

    def versions(self, tasks: list[Task], folder: Path) -> dict[str, str]:
        """Return the versions of FFmpeg and of what is installed for the contestants of some tasks."""
        ffmpeg = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout.split()[2]
        shared = ("numpy", "torch", "transformers") if self.device == "cuda" else ("numpy",)
        found = {"ffmpeg": ffmpeg} | {one.name: one.version for one in metadata.distributions() if one.name in shared}
        contestants = [self.floor, *(contestant for task in tasks for contestant in self.of(task).values())]
        for package in dict.fromkeys(contestant.package for contestant in contestants):
            found |= {} if package is None else versions_of(package, folder)
        return found


def versions_of(package: str, folder: Path) -> dict[str, str]:
    """Return the versions of a distribution and of those that share its environment, as far as they are installed."""
    beside = ENVIRONMENTS.get(package, Environment(())).packages
    wanted = [requirement.split("==")[0] for requirement in (package, *beside)]
    there = metadata.distributions(path=[str(modules_of(package, folder))])
    versions = {one.name.replace("_", "-"): one.version for one in there}
    return {name: versions[name] for name in wanted if name in versions and name != "numpy"}
