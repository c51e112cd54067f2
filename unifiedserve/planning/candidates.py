"""Describe one way to serve: a placement, and the options of its steps."""

from functools import cache
from typing import Any, Literal

import msgspec

from unifiedserve.config import EngineConfig, Order
from unifiedserve.placement import Placement, read_placement
from unifiedserve.placement.parts import Part, split_parts

Switch = Literal["on", "off"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a placement as `--placement` has it, on so many devices, and its step options. The placement is in parts.

    It is of a `method`, and `label` is its short name. With `targets` the engine is told the targets of requests; else
    it finds its own.
    """

    method: str
    label: str
    placement: str
    devices: int = 1
    order: Order = "slack"
    prefill_chunk_tokens: int = 512
    encode_budget_tokens: int = 512
    max_running: int = 64
    irp: Literal["auto", "off"] = "auto"
    dual_streams: Literal["auto", "on"] = "auto"
    targets: bool = False

    def table(self, cores: int) -> Placement:
        """Return the instances, over so many cores."""
        return msgspec.structs.replace(_table(self.placement, cores), irp=self.irp != "off")

    @property
    def mixes_passes(self) -> bool:
        """Tell whether any worker takes prompts and sequences through one pass."""
        return any({"p", "d"} <= set(part.stages) for part in self.parts)

    def runs_dual(self, kind: Literal["cpu", "cuda"]) -> bool:
        """Tell whether the encoder runs beside prompts and streams in one worker, as `--dual-streams` decides."""
        decodes = any({"e", "d"} <= set(part.stages) for part in self.parts)
        return self.may_run_dual and (self.dual_streams == "on" or (kind == "cuda" and decodes))

    @property
    def may_run_dual(self) -> bool:
        """Tell whether a worker has the encoder and the language model."""
        return any("e" in part.stages and {"p", "d"} & set(part.stages) for part in self.parts)

    @property
    def has_parallel_encoders(self) -> bool:
        """Tell whether several workers encode in one memory, so that they may share a request (EPD's IRP)."""
        homes = [part.home for part in self.parts for _ in range(part.count) if "e" in part.stages]
        return len(homes) > len(set(homes))

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of the placement."""
        return _parts(self.placement)

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of `unifiedserve serve` that differ from the defaults, but for the placement."""
        ours = ("order", "prefill_chunk_tokens", "encode_budget_tokens", "max_running", "irp", "dual_streams")
        return EngineConfig.of(**{name: getattr(self, name) for name in ours}).given


@cache
def _parts(text: str) -> tuple[Part, ...]:
    return tuple(split_parts(text))


@cache
def _table(text: str, cores: int) -> Placement:
    return read_placement(text, range(cores))
