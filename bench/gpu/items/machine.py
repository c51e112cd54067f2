"""What the machine is: the doctor's report and the compilers."""

import importlib
import os
import re
import subprocess
import sysconfig
import time
from importlib import metadata
from pathlib import Path

from bench.gpu.figures import Figures, Skip
from unifiedserve.doctor import sections
from unifiedserve.doctor.check import Status
from unifiedserve.doctor.libraries import find_program
from unifiedserve.doctor.report import cpu_path_works

KERNEL = """
#include <cstdio>
__global__ void add(int* x) { *x += 1; }
int main() {
  int *x, y = 41;
  if (cudaMalloc(&x, sizeof y) != cudaSuccess) return 1;
  cudaMemcpy(x, &y, sizeof y, cudaMemcpyHostToDevice);
  add<<<1, 1>>>(x);
  cudaMemcpy(&y, x, sizeof y, cudaMemcpyDeviceToHost);
  std::printf("%d", y);
  return y != 42;
}
"""
IMPORTED = ("torch", "triton", "transformers.modeling_utils")
PROGRAMS = (
    "g++",
    "gcc",
    "clang++",
    "nvcc",
    "cmake",
    "ninja",
    "compute-sanitizer",
    "ncu",
    "nsys",
    "nvidia-smi",
    "ffmpeg",
)


def imports(figures: Figures) -> None:
    """Import large packages and time it, so that later items find them in memory."""
    absent = []
    for name in IMPORTED:
        start = time.perf_counter()
        try:
            importlib.import_module(name)
            figures.add(**{f"{name.split('.')[0]}_s": time.perf_counter() - start})
        except Exception as error:  # a package that does not fit another one raises anything
            absent.append(f"{name}: {error}")
    if absent:
        raise Skip("; ".join(absent))


def doctor(figures: Figures) -> None:
    """Run the doctor; its figures are its checks, those of NVDEC with their capabilities, as each probe ends."""
    report = []
    for title, group in sections():
        report.append((title, group))
        print(title, *(f"  {check.name}: {check.status}, {check.value}" for check in group), sep="\n", flush=True)
        found = [check for _, checked in report for check in checked]
        checks = [{"name": check.name, "value": check.value, "status": check.status} for check in found]
        caps = [check.details["caps"] for check in found if "caps" in check.details]
        lacks = ", ".join(check.name for check in found if check.status is Status.MISSING)
        figures.add(serves_on_cpu=cpu_path_works(report), lacks=lacks, checks=checks, nvdec=caps)


def toolchain(figures: Figures) -> None:
    """Look for compilers and headers; compile CUDA C++ for this GPU, and run it."""
    figures.add(programs=[_program(name) for name in PROGRAMS])
    include = Path(sysconfig.get_path("include"), "Python.h")
    packages = {
        name: metadata.version(name) for name in ("pybind11", "scikit-build-core", "cmake", "ninja") if _has(name)
    }
    shared = os.statvfs("/dev/shm")
    figures.add(python_h=include.is_file(), shm_gib=shared.f_blocks * shared.f_frsize / 2**30, **packages)
    source = Path("kernel.cu")
    source.write_text(KERNEL)
    nvcc = find_program("nvcc")
    if nvcc is None:
        return
    start = time.perf_counter()
    subprocess.run([nvcc, "-arch=native", "-o", "kernel", source], check=True)
    figures.add(nvcc_s=time.perf_counter() - start)
    figures.add(nvcc_runs=subprocess.run(["./kernel"]).returncode == 0)


def _program(name: str) -> dict[str, str]:
    path = find_program(name)
    if path is None:
        return {"name": name, "path": "none", "version": ""}
    done = subprocess.run(
        [path, "-version" if name == "ffmpeg" else "--version"], capture_output=True, text=True, timeout=20
    )
    lines = [line for line in done.stdout.splitlines() if re.search(r"\d\.\d", line)]
    return {"name": name, "path": path, "version": lines[0].strip() if lines else "?"}


def _has(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
