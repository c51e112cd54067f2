"""Inspect GPUs and their driver, through libcuda."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from unifiedserve.doctor.check import Check, Status, gibibytes
from unifiedserve.doctor.cuda_driver import Driver
from unifiedserve.doctor.isolation import ProbeError, call

NO_GPU = "none, the CPU path is used"
NO_ANSWER = "there is a driver, but no GPU answers: is one visible to this user or container?"


def probe() -> list[Check]:
    try:
        found = call("gpu:devices")
    except ProbeError as error:
        return [Check("GPU", f"{NO_GPU}: {error}", Status.WARN, NO_ANSWER)]
    if not found["devices"]:
        return [Check("GPU", NO_GPU, Status.MISSING)]
    release = driver_release() or "unknown release"
    driver = Check("GPU driver", f"{release}, CUDA {found['cuda']}", details=found)
    return [driver, *(device(number, found) for number, found in enumerate(found["devices"]))]


def device(number: int, found: dict[str, Any]) -> Check:
    value = (
        f"{found['name']}, {gibibytes(found['memory'])}, {found['multiprocessors']} multiprocessors, "
        f"compute capability {found['capability']}"
    )
    return Check(f"GPU {number}", value, details=found)


def devices() -> dict[str, Any]:
    """Return the driver's CUDA version and its GPUs; none where there is no driver."""
    try:
        driver = Driver()
    except OSError:
        return {"cuda": None, "devices": []}
    return {"cuda": driver.version(), "devices": [_describe(driver, n) for n in range(driver.device_count())]}


def has_device() -> bool:
    """Say whether there is a GPU to test; a child is asked, nothing is raised."""
    try:
        return bool(call("gpu:devices")["devices"])
    except ProbeError:
        return False


def driver_release() -> str | None:
    """Return the driver's release as NVIDIA counts them, e.g. '580.95.05'."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next(word for word in words if word.count(".") >= 1 and word[0].isdigit())
    except (OSError, StopIteration):
        return _driver_release_of_smi()


def _driver_release_of_smi() -> str | None:
    binary = shutil.which("nvidia-smi")
    if binary is None:
        return None
    query = [binary, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)


def _describe(driver: Driver, device: int) -> dict[str, Any]:
    major, minor = (driver.device_attribute(device, name) for name in ("major", "minor"))
    return {
        "name": driver.device_name(device),
        "memory": driver.device_memory(device),
        "multiprocessors": driver.device_attribute(device, "multiprocessors"),
        "capability": f"{major}.{minor}",
    }
