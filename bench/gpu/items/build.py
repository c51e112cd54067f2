"""The C++ cores, built in this tree for the Python that runs."""

import os
import re
import subprocess
import sys
import time

import pybind11

from bench.gpu import machine
from bench.gpu.figures import Figures
from unifiedserve.doctor.libraries import find_program

_WARNING = re.compile(r": warning(:| #)")  # of compilers and linkers, and of nvcc


def build(figures: Figures, packages: str, optimization: str) -> None:
    """Configure and build packages (with commas) into their folders, and import them.

    The kernels for processors take two minutes with -O3, half of it in one file, and a quarter of one with -O1.
    """
    names = packages.split(",")
    folder = machine.BUILD / "-".join(names)
    cmake = str(find_program("cmake"))
    options = {
        "UNIFIED_PACKAGES": ";".join(names),
        "UNIFIED_INPLACE": "ON",
        "CMAKE_CXX_FLAGS_RELEASE": f"{optimization} -DNDEBUG",
        "CMAKE_INTERPROCEDURAL_OPTIMIZATION": "OFF",  # it would compile all of that again, at the end
        "UNIFIED_LENIENT": "ON",
        "pybind11_DIR": pybind11.get_cmake_dir(),
        "Python_EXECUTABLE": sys.executable,
        **_ffmpeg(),
    }
    generator = ["-G", "Ninja"] if find_program("ninja") else []
    start = time.perf_counter()
    defines = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run([cmake, "-S", machine.ROOT, "-B", folder, *generator, *defines], check=True)
    warnings = _warnings([cmake, "--build", str(folder), "--parallel", str(len(os.sched_getaffinity(0)))])
    figures.add(seconds=time.perf_counter() - start, warnings=warnings)
    code = f"import {', '.join(f'{name}._core' for name in names)}"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def _warnings(build: list[str]) -> int:
    """Run a build, pass its output on, and return the number of warnings in it."""
    found = 0
    with subprocess.Popen(
        build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as building:
        assert building.stdout is not None
        for line in building.stdout:
            print(line, end="", flush=True)
            found += _WARNING.search(line) is not None
    if building.returncode != 0:
        raise subprocess.CalledProcessError(building.returncode, build)
    return found


def _ffmpeg() -> dict[str, str]:
    """Return the option for the carried FFmpeg, where there is one; else the machine's own is looked for."""
    prefix = os.path.join(os.environ[machine.CARRIED_VARIABLE], "ffmpeg")
    return {"FFMPEG_ROOT": prefix} if os.path.isdir(prefix) else {}
