"""Build llama.cpp with all that this machine's processor can do.

    python bench/serve_cpu/install_llamacpp.py

The source comes from the package index: the source distribution of llama-cpp-python holds all of llama.cpp. Building
needs a C++ compiler and CMake, and takes two cores half an hour.
"""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

VERSION = "0.3.36"  # of llama-cpp-python, whose releases tell llama.cpp's
DEFAULT_FOLDER = Path("~/.cache/unifiedserve-bench/llamacpp").expanduser()
PROGRAMS = ("llama-server", "llama-batched-bench", "llama-quantize", "llama-perplexity")
#: what makes GGUF files of checkpoints, beside the programs
CONVERTER = ("convert_hf_to_gguf.py", "conversion", "gguf-py")
_SOURCE = "vendor/llama.cpp"
_NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" if platform.machine() == "x86_64" else ""
_SETTINGS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",  # which would be fetched, and measures nothing
    "LLAMA_OPENSSL": "OFF",
    # Its products in AMX's registers end the server by SIGILL: one of its threads has not configured them.
    "CMAKE_C_FLAGS": _NO_AMX,
    "CMAKE_CXX_FLAGS": _NO_AMX,
}


def program(folder: Path, name: str) -> Path:
    return folder / VERSION / name


def is_installed(folder: Path) -> bool:
    return all(program(folder, name).exists() for name in PROGRAMS)


def install(folder: Path) -> None:
    """Fetch, build and keep the programs. Raises OSError or CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        place = Path(scratch)
        source = fetch(place) / _SOURCE
        settings = [f"-D{name}={value}" for name, value in _SETTINGS.items()]
        subprocess.run(["cmake", "-S", str(source), "-B", str(place / "build"), *settings], check=True)
        build = ["cmake", "--build", str(place / "build"), "--parallel", str(os.cpu_count())]
        subprocess.run([*build, "--target", *PROGRAMS], check=True)
        keep = place / "keep"
        keep.mkdir()
        for part in [*(source / name for name in CONVERTER), *(place / "build" / "bin" / name for name in PROGRAMS)]:
            shutil.move(part, keep)
        keep.replace(folder / VERSION)


def fetch(place: Path) -> Path:
    """Download the source distribution, and return the folder that it is unpacked to."""
    what = ["--no-deps", "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"]
    subprocess.run([sys.executable, "-m", "pip", "download", *what, "--dest", str(place)], check=True)
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(place, filter="data")
    (unpacked,) = (path for path in place.iterdir() if path.is_dir())
    return unpacked


def main(folder: Annotated[Path, typer.Option(help="Keeps the programs")] = DEFAULT_FOLDER) -> None:
    """Build what is not there yet."""
    console = Console(stderr=True)
    try:
        if not is_installed(folder):
            install(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        console.print(f"llama.cpp cannot be built here: {error}", highlight=False)
        raise typer.Exit(1) from error
    console.print(f"llama.cpp (of llama-cpp-python {VERSION}) is in {program(folder, '')}")


if __name__ == "__main__":
    typer.run(main)
