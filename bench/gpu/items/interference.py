"""How much a stage is slowed down by another one beside it, by both of their sizes (UnifiedServe, Fig. 6)."""

from pathlib import Path

from bench.gpu.figures import Figures
from bench.gpu.mps_daemon import mps_daemon
from bench.gpu.partner import Partner

LOAD = "bench.gpu.model_load:ModelLoad"
SECONDS = 0.7
PATIENCE = 150.0
#: what streams need, and what goes on beside it
VICTIMS = (("decode", 1), ("decode", 8), ("decode", 64), ("prefill", 512))
BESIDE = (("prefill", 128), ("prefill", 512), ("prefill", 2048), ("encode", 1024), ("encode", 4096))


def under_mps(figures: Figures, device: str, shape: str) -> None:
    """Run each victim alone and beside each other stage, as two clients of MPS."""
    with mps_daemon(Path("mps").resolve()) as environment:
        measure(figures, device, shape, environment)


def measure(figures: Figures, device: str, shape: str, environment: dict[str, str], seconds: float = SECONDS) -> None:
    """Run them as two processes in an environment; a row is told when it is there."""
    with Partner(LOAD, environment, PATIENCE) as victim, Partner(LOAD, environment, PATIENCE) as other:
        loading = [partner.begin("load", shape, device) for partner in (victim, other)]
        figures.add(loaded_s=max(loaded() for loaded in loading))
        alone = {each: victim.run(*each, seconds)["median_ms"] for each in VICTIMS}
        for each in BESIDE:
            other.run(*each, 0.0)  # loads and compiles what it first uses
        rows = []
        for stage, size in VICTIMS:
            for other_stage, other_size in BESIDE:
                running = other.begin("run", other_stage, other_size, 1.5 * seconds)
                beside = victim.run(stage, size, seconds)
                done = running()
                rows.append({
                    "victim": f"{stage} {size}",
                    "beside": f"{other_stage} {other_size}",
                    "alone_ms": alone[stage, size],
                    "beside_ms": beside["median_ms"],
                    "p99_ms": beside["p99_ms"],
                    "slowdown": beside["median_ms"] / alone[stage, size],
                    "other_ms": done["median_ms"],
                })  # fmt: skip
                figures.add(rows=rows)
