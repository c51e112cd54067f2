"""The C++ cores, built in this tree for the Python that runs."""

import os
import subprocess
import sys
import time

import pybind11

from bench.gpu import machine
from bench.gpu.figures import Figures
from unifiedserve.doctor.libraries import find_program


def build(figures: Figures, packages: str) -> None:
    """Configure and build packages (with commas) into their folders, and import them."""
    names = packages.split(",")
    folder = machine.BUILD / "-".join(names)
    cmake = str(find_program("cmake"))
    options = {
        "UNIFIED_PACKAGES": ";".join(names),
        "UNIFIED_INPLACE": "ON",
        "pybind11_DIR": pybind11.get_cmake_dir(),
        "Python_EXECUTABLE": sys.executable,
        **_ffmpeg(),
    }
    generator = ["-G", "Ninja"] if find_program("ninja") else []
    start = time.perf_counter()
    defines = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run([cmake, "-S", machine.ROOT, "-B", folder, *generator, *defines], check=True)
    subprocess.run([cmake, "--build", folder, "--parallel", str(len(os.sched_getaffinity(0)))], check=True)
    figures.add(seconds=time.perf_counter() - start)
    code = f"import {', '.join(f'{name}._core' for name in names)}"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def _ffmpeg() -> dict[str, str]:
    """Return the option for the carried FFmpeg, where there is one; else the machine's own is looked for."""
    prefix = os.path.join(os.environ[machine.CARRIED_VARIABLE], "ffmpeg")
    return {"FFMPEG_ROOT": prefix} if os.path.isdir(prefix) else {}
