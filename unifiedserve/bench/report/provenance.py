"""Describe the circumstances of a run: the machine and the versions."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

from unifiedserve.doctor import system

PACKAGES = ("unifiedserve", "numpy", "httpx", "torch", "transformers")
CHECKOUT = Path(__file__).resolve().parents[3]
SECONDS = 10  # for a program that tells something


def describe_machine() -> dict[str, str]:
    """Return the usable processor, cores and memory, the operating system, and any GPUs."""
    found = {
        "cpu": system.cpu().value,
        "cores": system.cores().value,
        "memory": system.memory().value,
        "system": platform.platform(),
    }
    gpus = _told_by("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return found | ({"gpu": ", ".join(gpus.splitlines())} if gpus else {})


def describe_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed `PACKAGES`. A checkout also has its commit."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = describe_commit()
    return found | ({"commit": commit} if commit else {})


def describe_commit(checkout: Path = CHECKOUT) -> str | None:
    """Return the commit of a checkout, with `-dirty` if files of it were changed; None if it is the root of none."""
    root = _told_by("git", "-C", str(checkout), "rev-parse", "--show-toplevel")
    if not root or Path(root) != checkout:
        return None
    return _told_by("git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _told_by(*command: str) -> str | None:
    """Return what a program prints; None if it is not there, fails or has nothing to say."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.strip() or None
