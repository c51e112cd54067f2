"""What items may need of the machine, each looked for in a process of its own: a driver may hang."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu import machine, processes
from unifiedserve.doctor.libraries import find_program

LONGEST = 300  # characters of a reason
PATIENCE = 180.0  # seconds for one condition: packages may come from a cold disk


@dataclass(frozen=True)
class Condition:
    """A line of Python that succeeds where a condition holds, and what to say where it does not.

    One that is `built` may hold later: an item builds what it looks for.
    """

    code: str
    reason: str
    built: bool = False


CONDITIONS = {
    "driver": Condition(
        "from unifiedserve.doctor import gpu; raise SystemExit(not gpu.devices()['devices'])",
        "no GPU answers to libcuda",
    ),
    "torch": Condition(
        "import torch; raise SystemExit(not torch.cuda.is_available())", "torch sees no GPU, or is not there"
    ),
    "triton": Condition("import triton", "no triton"),
    "pytest": Condition("import pytest, hypothesis, xdist", "no pytest, hypothesis or pytest-xdist"),
    "cores": Condition(
        "import ipc_buffers._core, unifiedserve._core", "the C++ cores are not built: see the log of item build", True
    ),
    "flashcodec": Condition(
        "import flashcodec._core", "FlashCodec's core is not built: see the log of item build_flashcodec", True
    ),
    "server": Condition(
        "import cachetools, greenlet, llguidance, msgspec, python_multipart, simplejpeg, starlette, transformers",
        "packages that serve are missing: carry.py assembles them",
    ),
    "engine": Condition(
        "from unifiedserve.config import EngineConfig; from unifiedserve.device.cuda.support import obstacle; "
        "raise SystemExit(obstacle(EngineConfig()))",
        "the engine finds no GPU that it can use: see the doctor's report",
    ),
}
PROGRAMS = {
    "nvcc": "nvcc",
    "g++": "g++",
    "cmake": "cmake",
    "compute-sanitizer": "compute-sanitizer",
    "mps": "nvidia-cuda-mps-control",
}


class Needs:
    """Remembers which conditions hold, and which do not; one that gave no answer in time is looked for again."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._known: dict[str, str | None] = {}

    def lacking(self, names: Sequence[str], patience: float) -> str | None:
        """Return why one of the conditions does not hold, or None if all do; all are looked for in so many seconds."""
        end = time.monotonic() + patience
        return next(filter(None, (self._reason(name, max(0.1, end - time.monotonic())) for name in names)), None)

    def _reason(self, name: str, patience: float) -> str | None:
        if name in self._known:
            return self._known[name]
        if name in CONDITIONS:
            return self._tried(name, min(PATIENCE, patience))
        self._known[name] = self._program(name) if name in PROGRAMS else FILES[name](self._carried)
        return self._known[name]

    def _tried(self, name: str, patience: float) -> str | None:
        condition = CONDITIONS[name]
        command = [sys.executable, "-P", "-c", condition.code]
        with tempfile.TemporaryFile() as log:
            code = processes.run(command, self._environment, machine.ROOT, log, patience)
            log.seek(0)
            last = log.read().decode(errors="replace").strip().splitlines()[-1:]
        if code is None:
            return f"{condition.reason} (no answer within {patience:.3g} s)"
        reason = ": ".join([condition.reason, *last])[:LONGEST] if code else None
        if reason is None or not condition.built:
            self._known[name] = reason
        return reason

    def _program(self, name: str) -> str | None:
        program = PROGRAMS[name]
        found = shutil.which(program, path=self._environment["PATH"]) or find_program(program)
        return None if found else f"no {program}"

    @property
    def _carried(self) -> Path:
        return Path(self._environment[machine.CARRIED_VARIABLE])


def _ffmpeg(carried: Path) -> str | None:
    return None if (carried / "ffmpeg/include/libswscale").is_dir() else f"no FFmpeg with headers in {carried}"


def _references(carried: Path) -> str | None:
    return None if (carried / "references").is_dir() else f"no references in {carried}: make_references.py makes them"


def _peers(carried: Path) -> str | None:
    return None if (carried / "peers").is_dir() else f"no other decoders in {carried}: carry.py --peers assembles them"


def _videos(carried: Path) -> str | None:
    return None if (carried / "videos").is_dir() else f"no small videos in {carried}: make_videos.py makes them"


FILES: dict[str, Callable[[Path], str | None]] = {
    "ffmpeg": _ffmpeg,
    "references": _references,
    "peers": _peers,
    "videos": _videos,
}
