"""Inspect FFmpeg: which libraries FlashCodec uses, or would use, and what they can decode."""

import contextlib
import ctypes
import ctypes.util
import importlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from unifiedserve.doctor.check import Check, Status, version_tuple
from unifiedserve.doctor.isolation import ProbeError, call

OLDEST_LIBAVCODEC = 59  # FFmpeg 5.x
DECODERS = {
    "h264": ("h264",),
    "hevc": ("hevc",),
    "vp8": ("vp8",),
    "vp9": ("vp9",),
    "av1": ("libdav1d", "libaom-av1", "libgav1"),  # FFmpeg's own "av1" decodes in hardware only
    "mpeg2": ("mpeg2video",),
    "mpeg4": ("mpeg4",),
    "mjpeg": ("mjpeg",),
    "prores": ("prores",),
}
NEEDED = ("h264", "hevc", "vp9", "av1")
INSTALL = (
    "apt install ffmpeg libavformat-dev libavcodec-dev libavutil-dev libswscale-dev pkg-config, "
    "dnf install ffmpeg-free ffmpeg-free-devel, or brew install ffmpeg pkg-config"
)


def probe() -> list[Check]:
    module = flashcodec_module()
    try:
        found = call("ffmpeg:libraries")
    except ProbeError as error:
        found = without_libraries(str(error))
        return [module, Check("FFmpeg", found, Status.MISSING, INSTALL, required=True)]
    return [module, version(found), decoders(found["decoders"])]


def flashcodec_module() -> Check:
    try:
        call("ffmpeg:import_flashcodec")
    except ProbeError as error:
        return Check("flashcodec", f"not usable: {error}", Status.MISSING, "make setup", required=True)
    return Check("flashcodec", "its C++ core loads", required=True)


def version(found: dict[str, Any]) -> Check:
    value = f"{found['version']}, libavcodec {found['libavcodec']} ({found['path']})"
    old = version_tuple(found["libavcodec"])[0] < OLDEST_LIBAVCODEC
    status, remedy = (Status.MISSING, f"FFmpeg 5.1 or newer: {INSTALL}") if old else (Status.OK, "")
    return Check("FFmpeg", value, status, remedy, required=True, details=found)


def decoders(found: dict[str, str]) -> Check:
    names = [codec if codec == name else f"{codec} ({name})" for codec, name in found.items() if name]
    lacking = [codec for codec in NEEDED if not found[codec]]
    status, remedy = Status.OK, ""
    if lacking:
        status, remedy = Status.WARN, f"cannot decode {', '.join(lacking)}: install an FFmpeg built with it"
    return Check("FFmpeg decoders", ", ".join(names) or "none", status, remedy, details=found)


def without_libraries(reason: str) -> str:
    """Say what else there is of FFmpeg when its libraries cannot be loaded."""
    binary = shutil.which("ffmpeg")
    if binary is None:
        return f"no libraries ({reason}), no ffmpeg program"
    try:
        done = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=10)
        banner = (done.stdout.splitlines() or ["?"])[0]
    except (OSError, subprocess.SubprocessError) as error:
        banner = f"which does not run: {error}"
    return f"no libraries ({reason}); only {binary}: {banner}"


def import_flashcodec() -> str:
    return str(importlib.import_module("flashcodec._core").__file__)


def libraries() -> dict[str, Any]:
    """Return version, path and decoders of FlashCodec's libavcodec, else of the system's."""
    path = linked_library("libavcodec.so") or ctypes.util.find_library("avcodec")
    if path is None:
        raise FileNotFoundError("libavcodec not found")
    codec = ctypes.CDLL(path)
    util = ctypes.CDLL(linked_library("libavutil") or ctypes.util.find_library("avutil"))
    util.av_version_info.restype = ctypes.c_char_p
    codec.avcodec_find_decoder_by_name.restype = ctypes.c_void_p
    number = codec.avcodec_version()
    return {
        "version": util.av_version_info().decode(),
        "libavcodec": f"{number >> 16}.{number >> 8 & 255}.{number & 255}",
        "path": linked_library("libavcodec") or path,
        "decoders": {
            name: next((n for n in names if codec.avcodec_find_decoder_by_name(n.encode())), "")
            for name, names in DECODERS.items()
        },
    }


def linked_library(name: str) -> str | None:
    """Return the file of a library that importing flashcodec maps, if any."""
    with contextlib.suppress(ImportError):
        import_flashcodec()
    return mapped_file(name)


def mapped_file(name: str) -> str | None:
    """Return the path of a mapped shared object whose file name starts with `name`."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return next((path for path in paths if Path(path).name.startswith(name)), None)
