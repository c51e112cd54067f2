"""Describe the profile of one device with one model, as it is read and written."""

import datetime
from collections.abc import Iterator
from math import isfinite
from typing import Annotated, Literal

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.placement import Stage
from unifiedserve.scheduling.stage_costs import StageCosts

FORMAT: Literal[1] = 1

Count = Annotated[int, msgspec.Meta(ge=0)]
Size = Annotated[float, msgspec.Meta(ge=0)]
Factor = Annotated[float, msgspec.Meta(gt=0)]


class DeviceSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size one device: a GPU, or all cores of a machine."""

    kind: Literal["cpu", "cuda"]
    cores: Count = 0  # of a CPU
    memory_gib: Size = 0.0
    video_engines: Count = 0  # NVDEC units of a GPU; a CPU has none, its cores decode


class ModelSizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Count what the model takes, and what a request's media and tokens fill."""

    weights_gib: dict[Literal["encoder", "language"], Size] = {}
    kv_token_bytes: Count = 0
    image_tokens: Count = 0  # visual tokens of a typical image
    frame_tokens: Size = 0.0  # of one frame of a video
    patches_a_token: Count = 4
    keeps_visual: bool = False  # visual tokens are no part of the prompt: answers attend to them beside it


class HardwareProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cost the stages of `model` on one device of `hardware`, that device alone.

    `interference[stage][other]` is how many times longer `stage` takes while `other` runs beside it on the same
    device, 1.0 where it is not given (UnifiedServe, Fig. 6). `half_device[stage]` is how many times longer it takes
    alone on half of a CPU's cores, or half of a GPU's threads under MPS, as far as that was measured.

    `digest` tells measured models apart that share a name. `spread` says how far the measurements of a number lie
    apart, as a part of it. `sources` says where numbers are from, by their dotted name.
    """

    format: Literal[1] = FORMAT
    model: str
    digest: str = ""
    hardware: str
    versions: dict[str, str] = {}  # of what it was measured with
    date: datetime.date
    device: DeviceSize
    model_sizes: ModelSizes = ModelSizes()
    costs: StageCosts
    half_device: dict[Stage, Factor] = {}
    interference: dict[Stage, dict[Stage, float]] = {}
    spread: dict[str, Size] = {}
    sources: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Raise ValueError for a number that nothing can be."""
        for name, value, least in self._bounds():
            if not isfinite(value) or value < least:
                raise ValueError(f"{name} is {value:g}, which must be {least:g} or more")

    def factor(self, stage: Stage, beside: Stage) -> float:
        """Return how many times longer `stage` takes while `beside` runs on the same device."""
        return self.interference.get(stage, {}).get(beside, 1.0)

    def check(self, model: str, hardware: str) -> None:
        """Raise ConfigError if this is of another model (its name or its digest) or of other hardware."""
        if model not in {self.model, self.digest}:
            raise ConfigError(f"the profile is of the model {self.model}, not of {model}: measure that one")
        if hardware != self.hardware:
            raise ConfigError(f"the profile is of {self.hardware}, not of {hardware}: measure here")

    def _bounds(self) -> Iterator[tuple[str, float, float]]:
        """Yield the name and value of each number, with the least that it can be."""
        least = {"half": 1.0, "encoder_layers": 1.0, "gop_seconds": 0.001}
        for name, value in msgspec.structs.asdict(self.costs).items():
            yield f"costs.{name}", value, least.get(name, 0.0)
        for stage, row in self.interference.items():
            for other, value in row.items():
                yield f"interference.{stage}.{other}", value, 1.0
        yield "device.cores", self.device.cores, float(self.device.kind == "cpu")
        yield "device.memory_gib", self.device.memory_gib, 0.0
        yield "model_sizes.frame_tokens", self.model_sizes.frame_tokens, 0.0
        for network, size in self.model_sizes.weights_gib.items():
            yield f"model_sizes.weights_gib.{network}", size, 0.0
