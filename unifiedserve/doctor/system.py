"""Inspect the machine: processor, memory, shared memory, Python, compilers."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from unifiedserve.doctor.check import Check, Status, gibibytes

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
FEATURES = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_bf16": "avx512_bf16",
    "amx_tile": "amx",
    "asimd": "neon",
    "sve": "sve",
}
SHM_REQUIRED = 2**30  # bytes that the default buffers take
SHM_COMFORTABLE = 2 * 2**30
OLDEST_PYTHON = (3, 11)


def probe() -> list[Check]:
    return [cpu(), cores(), memory(), shared_memory(), python(), compiler(), nvcc()]


def cpu() -> Check:
    info = _fields(CPUINFO)
    model = info.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in info:  # names as short as "AMD EPYC" do not tell the generation
        model += f", family {info['cpu family']} model {info.get('model')}"
    flags = set((info.get("flags") or info.get("Features") or "").split())
    found = [name for flag, name in FEATURES.items() if flag in flags]
    return Check("CPU", f"{model} ({', '.join(found) or 'no wide vectors'})", details={"features": found})


def cores() -> Check:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    value = str(usable) if usable == total else f"{usable} of {total}"
    details = {"usable": usable}
    if usable >= 2:
        return Check("CPU cores", value, details=details)
    return Check("CPU cores", value, Status.WARN, "two or more let the stages overlap", details=details)


def memory() -> Check:
    info = _fields(MEMINFO)
    if "MemTotal" not in info:
        return Check("memory", "unknown (no /proc/meminfo)", Status.WARN)
    total, free = 1024 * int(info["MemTotal"].split()[0]), available_bytes()
    container = _container()
    limit = container[0] if container and container[0] < total else None
    allowed = "" if limit is None else f", of which this container may have {gibibytes(limit)}"
    value = f"{gibibytes(total)}{allowed}, {gibibytes(free)} available"
    details = {"total": total if limit is None else limit, "available": free}
    if free >= 2 * 2**30:
        return Check("memory", value, details=details)
    return Check("memory", value, Status.WARN, "free 2 GiB or more before serving", details=details)


def available_bytes() -> int:
    """Return the free bytes of the machine, or of the container if that allows less."""
    machine = 1024 * int(_fields(MEMINFO)["MemAvailable"].split()[0])
    container = _container()
    return min(machine, container[1]) if container else machine


def _container() -> tuple[int, int] | None:
    """Return the bytes that this container may have, and the free ones of them; None without a limit."""
    try:
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        lines = map(str.split, (CGROUP / "memory.stat").read_text().splitlines())
        reclaimable = next(int(size) for name, size in lines if name == "inactive_file")
    except (OSError, ValueError, StopIteration):  # no container, or no limit ("max")
        return None
    return limit, limit - used + reclaimable


def shared_memory(directory: str = "/dev/shm") -> Check:
    try:
        stats = os.statvfs(directory)
    except OSError as error:
        remedy = f"mount a tmpfs at {directory}"
        return Check(directory, error.strerror or "unreadable", Status.MISSING, remedy, required=True)
    if not stats.f_blocks:  # mount -o size=0, podman run --shm-size=0
        return Check(directory, "no limit of its own", required=True)
    total, free = stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize
    status = Status.OK
    if free < SHM_COMFORTABLE:
        status = Status.WARN if free >= SHM_REQUIRED else Status.MISSING
    enlarge = f"mount -o remount,size=8G {directory}; in a container: --shm-size=8g"
    remedy = "" if status is Status.OK else enlarge
    value = f"{gibibytes(total)}, {gibibytes(free)} free"
    return Check(directory, value, status, remedy, required=True, details={"total": total, "free": free})


def python() -> Check:
    value = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= OLDEST_PYTHON:
        return Check("Python", value, required=True)
    return Check("Python", value, Status.MISSING, "install Python 3.11 or newer", required=True)


def compiler() -> Check:
    for name in filter(None, [os.environ.get("CXX"), "c++", "g++", "clang++"]):
        line = _first_line(name, "--version")
        if line:
            return Check("C++ compiler", line)
    remedy = "to build from source: apt install g++ (dnf install gcc-c++, xcode-select --install)"
    return Check("C++ compiler", "none", Status.MISSING, remedy)


def nvcc() -> Check:
    path = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if path is None:
        return Check("nvcc", "none (not needed to serve)")
    lines = _output(path, "--version").splitlines()
    release = next((line.split("release ")[1].split(",")[0] for line in lines if "release " in line), "?")
    return Check("nvcc", f"{release} ({path})", details={"version": release, "path": path})


def _fields(path: Path) -> dict[str, str]:
    """Return the first value of each 'key: value' line; empty where the file does not exist."""
    fields: dict[str, str] = {}
    try:
        for line in path.read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    return fields


def _first_line(*command: str) -> str:
    return (_output(*command).splitlines() or [""])[0]


def _output(*command: str) -> str:
    """Return what a command prints, or '' when it cannot run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
