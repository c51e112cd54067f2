"""Stand-ins for libcuda and libnvcuvid, tests/fakes, compiled where a test asks for them and found before real ones."""

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from once import once

FAKES = Path(__file__).parents[1] / "fakes"
BUILT = Path(__file__).parents[2] / "build" / "fakes"  # what was compiled before, by what it was made from
LIBRARY = "libcuda.so.1"
DECODERS = "libnvcuvid.so.1"
JPEG = "libnvjpeg.so.13"
FLASHCODEC = Path(__file__).parents[2] / "flashcodec" / "csrc"  # whose kernels it runs


def cxx() -> str:
    """Return the C++ compiler; skips the test if there is none."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    return compiler


def build(folder: Path, *flags: str) -> Path:
    """Compile the stand-in for libcuda into a folder, for `use`."""
    sources = ("cuda.cpp", "cuda_streams.cpp", "cuda_launch.cpp", "cuda_devices.cpp", "cuda_sockets.cpp")
    _compile(folder / LIBRARY, *sources, *flags)
    return folder


def build_decoders(folder: Path) -> Path:
    """Compile the stand-in for libnvcuvid into a folder."""
    codecs = (str(FLASHCODEC / "codecs" / name) for name in ("nal.cpp", "h264_sps.cpp", "frame_numbers.cpp"))
    _compile(folder / DECODERS, "nvcuvid.cpp", *codecs, "-I", str(FLASHCODEC.parents[1]), *_ffmpeg_flags())
    return folder


def build_jpeg(folder: Path) -> Path:
    """Compile the stand-in for libnvjpeg into a folder."""
    _compile(folder / JPEG, "nvjpeg.cpp", "-I", str(FLASHCODEC.parents[1]))
    return folder


def _ffmpeg_flags() -> list[str]:
    """Return what compiles and links with FlashCodec's FFmpeg; skips the test if it is not known."""
    if root := os.environ.get("FFMPEG_ROOT"):
        return [f"-I{root}/include", f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", "-lavcodec", "-lavutil"]
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libavcodec", "libavutil"], capture_output=True, text=True
    )
    if found.returncode != 0:
        pytest.skip("no headers of FFmpeg where pkg-config looks")
    return found.stdout.split()


def _compile(library: Path, *arguments: str) -> None:
    options = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", str(FLASHCODEC)]
    options.append(f"-Wl,-soname,{library.name}")
    command = [cxx(), *options, *arguments]
    made_from = hashlib.sha256(repr(command).encode() + _sources()).hexdigest()[:16]
    shutil.copy(
        once(BUILT / made_from, lambda path: subprocess.run([*command, "-o", path], check=True, cwd=FAKES)), library
    )


@cache
def _sources() -> bytes:
    files = sorted(
        file for folder in (FAKES, FLASHCODEC) for file in folder.rglob("*") if file.suffix in (".cpp", ".h")
    )
    return b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)


def use(libraries: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make processes that are started from now on find it, with its GPUs' memory in the folder `state`."""
    paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(paths))
    monkeypatch.setenv("FAKE_CUDA_FOLDER", str(state))
