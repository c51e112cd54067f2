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
from unifiedserve.environment import environment_of_workers

CLIENT, CONFINED = "bench.gpu.gpu_client:GpuClient", "bench.gpu.confined:Confined"
MIB = 2**20
WORD = 0x5EED0020
DONE = "done"
#: a worker cannot serve without these; what NVDEC and nvJPEG cannot do is left to cores
NEEDED = ("cuInit and a context", "memory of another process")
PATIENCE = 12.0

Outcomes = dict[str, str]  # of each step: that it was done, or why it was not


def cuda_inside(figures: Figures) -> None:
    """Try CUDA, memory of another process, NVDEC and nvJPEG in the vision worker's sandbox, also under MPS.

    Where one fails, it is tried without the sandbox and in each half of it. Raises RuntimeError if the sandbox is what
    keeps CUDA from working.
    """
    blamed = _blamed(figures, "inside")
    if find_program(CONTROL) is not None:
        try:
            with mps_daemon(Path("mps").resolve()) as environment:
                blamed += _blamed(figures, "inside_under_mps", environment)
        except (OSError, subprocess.SubprocessError) as error:
            figures.add(mps=str(error))
    if blamed:
        raise RuntimeError(f"the sandbox keeps CUDA from working: {'; '.join(blamed)}")


def _blamed(figures: Figures, name: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return which of the needed steps work without the sandbox only, and why they fail in it."""
    inside = _tried(figures, name, "both", environment)
    if set(inside.values()) == {DONE}:
        return []
    outside = _tried(figures, f"{name}_of_nothing", "nothing", environment)
    blamed = [f"{step}: {inside[step]}" for step in NEEDED if outside[step] == DONE != inside[step]]
    if blamed:
        for by in ("files", "calls"):
            _tried(figures, f"{name}_of_{by}", by, environment)
    return blamed


def _tried(figures: Figures, name: str, by: str, environment: Mapping[str, str] | None) -> Outcomes:
    """Do all steps in a process that is confined so, and tell each as it ends."""
    found: Outcomes = {}
    environment = environment_of_workers() | (environment or {})
    with Partner(CLIENT) as owner, Partner(CONFINED, environment, PATIENCE) as confined:
        owner.start()
        owner.allocate("m", 4 * MIB)
        owner.fill("m", WORD)
        steps: dict[str, Callable[[], Any]] = {
            "the sandbox": lambda: confined.confine(by),
            "cuInit and a context": confined.start,
            "memory of another process": lambda: _shared(owner, confined),
            "NVDEC": lambda: _without_fallbacks(confined.decode_video()),
            "nvJPEG": lambda: _taken(confined.decode_image()),
        }
        for step, work in steps.items():
            found[step] = _outcome(work)
            figures.add(**{name: found})
    return found


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
