"""Locate the GPU's shared libraries and programs: the system's, CUDA's folder, pip's nvidia packages."""

import ctypes
import shutil
import sys
from pathlib import Path

from unifiedserve.doctor.check import Check, Status
from unifiedserve.doctor.ffmpeg import mapped_file
from unifiedserve.doctor.isolation import ProbeError, call

CONTAINER = "in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
LIBRARIES = {
    "libcuda": (("libcuda.so.1",), "for GPUs: install NVIDIA's driver (the CPU path needs none)"),
    "libnvcuvid": (("libnvcuvid.so.1",), f"NVDEC: {CONTAINER}"),
    "libnvidia-encode": (("libnvidia-encode.so.1",), f"NVENC, for tests only: {CONTAINER}"),
    "libnvjpeg": (
        ("libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"),
        "JPEG in hardware: pip install nvidia-nvjpeg",
    ),
}
MPS = "MPS: install NVIDIA's compute utilities (nvidia-compute-utils)"
PROGRAMS = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
CUDA_FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/nvidia/lib64", "/opt/cuda/lib64")
PROGRAM_FOLDERS = "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/sbin"


def probe() -> list[Check]:
    checks = [library(name) for name in LIBRARIES]
    driver = checks[0].status is Status.OK
    checks += [program(name) for name in PROGRAMS]
    return checks if driver else [checks[0], *map(without_remedy, checks[1:])]


def library(name: str) -> Check:
    sonames, remedy = LIBRARIES[name]
    try:
        path = call("libraries:load", *sonames)
    except ProbeError as error:
        return Check(name, str(error), Status.MISSING, remedy)
    return Check(name, path, details={"path": path})


def program(name: str) -> Check:
    path = find_program(name)
    if path is None:
        return Check(name, "none", Status.MISSING, MPS)
    return Check(name, path, details={"path": path})


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=PROGRAM_FOLDERS)


def without_remedy(check: Check) -> Check:
    """Drop the remedy: without a driver one remedy is enough."""
    return Check(check.name, check.value, check.status, details=check.details)


def load(*sonames: str) -> str:
    """Open the first of the libraries that there is and return its path; OSError when there is none."""
    for soname in sonames:
        for candidate in (soname, *_candidates(soname)):
            try:
                ctypes.CDLL(candidate)
            except OSError:
                continue
            return mapped_file(soname.removesuffix(".1")) or candidate
    raise FileNotFoundError("none")


def _candidates(soname: str) -> list[str]:
    folders = [Path(folder) for folder in CUDA_FOLDERS]
    for entry in sys.path:
        folders += Path(entry, "nvidia").glob("*/lib")
    return [str(folder / soname) for folder in folders if (folder / soname).exists()]
