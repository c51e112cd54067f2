"""What stands between a GPU and workers that are confined, and workers that are forked."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.gpu.figures import Figures
from bench.gpu.mps_daemon import mps_daemon
from bench.gpu.partner import Partner, PartnerError
from unifiedserve.doctor.libraries import find_program
from unifiedserve.doctor.mps import CONTROL
from unifiedserve.engine.zygote import environment_of_workers

CLIENT, CONFINED = "bench.gpu.gpu_client:GpuClient", "bench.gpu.confined:Confined"
MIB = 2**20
WORD = 0x5EED0020
DONE = "done"
#: what a confined worker needs: without these it cannot serve; NVDEC and nvJPEG are left to cores if need be
NEEDED = ("cuInit and a context", "memory of another process")
PATIENCE = 40.0


def cuda_inside(figures: Figures) -> None:
    """Try CUDA, memory of another process, NVDEC and nvJPEG in the vision worker's sandbox, also under MPS.

    Where one fails, it is tried without the sandbox and in each half of it. Raises RuntimeError if CUDA cannot be used
    inside.
    """
    found = {"inside": _tried("both")}
    figures.add(**found)
    if find_program(CONTROL) is not None:
        found["inside_under_mps"] = _tried_under_mps()
        figures.add(**found)
    if set(found["inside"].values()) != {DONE}:
        for by in ("nothing", "files", "calls"):
            figures.add(**{f"confined_by_{by}": _tried(by)})
    steps = [(f"{where}, {step}", said[step]) for where, said in found.items() for step in NEEDED if step in said]
    if failed := [f"{step}: {said}" for step, said in steps if said != DONE]:
        raise RuntimeError(f"the sandbox keeps CUDA from working: {'; '.join(failed)}")


def _tried_under_mps() -> dict[str, str]:
    try:
        with mps_daemon(Path("mps").resolve()) as environment:
            return _tried("both", environment)
    except (OSError, subprocess.SubprocessError) as error:
        return {"the daemon": str(error)}


def _tried(by: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return for each step that it was done, or why it was not."""
    environment = environment_of_workers() | (environment or {})
    with Partner(CLIENT) as owner, Partner(CONFINED, environment, PATIENCE) as confined:
        owner.start()
        owner.allocate("m", 4 * MIB)
        owner.fill("m", WORD)
        confined.confine(by)
        return {
            "cuInit and a context": _outcome(confined.start),
            "memory of another process": _outcome(lambda: _shared(owner, confined)),
            "NVDEC": _outcome(lambda: _without_fallbacks(confined.decode_video())),
            "nvJPEG": _outcome(lambda: _taken(confined.decode_image())),
        }


def _outcome(step: Callable[[], Any]) -> str:
    try:
        step()
    except PartnerError as error:
        return str(error)
    return DONE


def _shared(owner: Partner, confined: Partner) -> None:
    confined.open("m", owner.export("m"), 4 * MIB)
    if not confined.holds("m", WORD):
        raise PartnerError("it does not hold what its owner wrote")


def _without_fallbacks(fallbacks: int) -> None:
    if fallbacks:
        raise PartnerError(f"{fallbacks} segments were left to cores")


def _taken(taken: bool) -> None:
    if not taken:
        raise PartnerError("the hardware left the image to cores")


def zygote(figures: Figures) -> None:
    """Do the zygote's imports, and say which of them starts a thread or opens a GPU: the log has its stack."""
    command = [sys.executable, "-P", "-m", "bench.gpu.watched_imports"]
    environment = environment_of_workers() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    print(done.stdout)
    obstacles = [line.removeprefix("obstacle: ") for line in done.stdout.splitlines() if line.startswith("obstacle: ")]
    figures.add(forks=not obstacles, obstacles=obstacles)
