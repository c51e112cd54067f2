"""Where things are on the machine that is tried, and what it is."""

import contextlib
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from unifiedserve.doctor import gpu
from unifiedserve.doctor.isolation import ProbeError, call

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / "bench/gpu/carry"
#: tells items where the carried folder is
CARRIED_VARIABLE = "GPU_BENCH_CARRIED"
#: tells items that serve how: "auto" or "off"
SANDBOX_VARIABLE = "GPU_BENCH_SANDBOX"
BUILD = ROOT / "build/gpu"
SOURCES = (ROOT, ROOT / "flashcodec/python", ROOT / "ipc_buffers/python")
#: of what was carried, for the Python that runs
PACKAGES_FOLDER = "python{}.{}".format(*sys.version_info)
PACKAGES = ("torch", "triton", "transformers", "numpy")


def environment(carried: Path) -> dict[str, str]:
    """Return the environment of items: this tree's sources first, then what was carried, then the machine's own."""
    carried = carried.resolve()
    before = {
        "PYTHONPATH": [*map(str, SOURCES), str(carried / PACKAGES_FOLDER)],
        "PATH": [str(Path(sys.executable).parent)],
        "LD_LIBRARY_PATH": [str(carried / "ffmpeg/lib")] if (carried / "ffmpeg").is_dir() else [],
    }
    found = dict(os.environ) | {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", CARRIED_VARIABLE: str(carried)}
    for name, paths in before.items():
        if joined := os.pathsep.join([*paths, *filter(None, [os.environ.get(name)])]):
            found[name] = joined
    return found


def carried_clip(name: str) -> Path:
    """Return a clip that was carried, or that of this tree."""
    carried = Path(os.environ[CARRIED_VARIABLE], "clips", name)
    return carried if carried.exists() else ROOT / "unifiedserve/samples" / name


def describe(items_environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the header of the results: device, driver, date, commit and versions."""
    devices: dict[str, Any] = {"cuda": None, "devices": []}
    with contextlib.suppress(ProbeError):
        devices = call("gpu:devices")
    return {
        "device": ", ".join(device["name"] for device in devices["devices"]) or "no GPU",
        "driver": gpu.driver_release(),
        "cuda": devices["cuda"],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(Path(items_environment[CARRIED_VARIABLE])),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "cores": len(os.sched_getaffinity(0)),
        "command": " ".join(sys.argv),
        "carried": items_environment[CARRIED_VARIABLE] if Path(items_environment[CARRIED_VARIABLE]).is_dir() else None,
    }


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def commit(carried: Path = CARRIED) -> str | None:
    """Return the commit, with a plus if files were changed since; where git knows none, that of what was carried."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    with contextlib.suppress(OSError):
        return (carried / "commit").read_text().strip()
    return None
