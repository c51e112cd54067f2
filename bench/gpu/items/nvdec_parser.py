"""What NVDEC's parser says of a picture's references, in sound videos and where pictures are lost."""

import ctypes
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.gpu import machine
from bench.gpu.cargo import VIDEOS
from bench.gpu.figures import Figures
from bench.gpu.video_files import ARCHIVE, CASES

CODECS = {"h264": 4, "hevc": 8}
SURFACES = 20
_END = 1


class Entry(ctypes.Structure):
    """CUVIDH264DPBENTRY."""

    _fields_ = [
        (name, ctypes.c_int) for name in ("surface", "frame_num", "long_term", "not_existing", "used", "top", "bottom")
    ]


class H264(ctypes.Structure):
    """The beginning of CUVIDH264PICPARAMS."""

    _fields_ = [
        ("log2_max_frame_num_minus4", ctypes.c_int),
        ("other", ctypes.c_int * 21),
        ("reference", ctypes.c_int),
        ("frame_num", ctypes.c_int),
        ("order", ctypes.c_int * 2),
        ("dpb", Entry * 16),
    ]


class Hevc(ctypes.Structure):
    """The beginning of CUVIDHEVCPICPARAMS."""

    _fields_ = [
        ("size", ctypes.c_int * 2),
        ("bytes", ctypes.c_uint8 * 72),
        ("tiles", ctypes.c_uint16 * 42),
        ("more", ctypes.c_uint8 * 28),
        ("reserved", ctypes.c_uint * 8),
        *((name, ctypes.c_int) for name in ("bits", "deltas", "total", "before", "after", "long", "order")),
        ("surfaces", ctypes.c_int * 16),
        ("orders", ctypes.c_int * 16),
        ("is_long", ctypes.c_uint8 * 16),
        ("in_before", ctypes.c_uint8 * 8),
        ("in_after", ctypes.c_uint8 * 8),
        ("in_long", ctypes.c_uint8 * 8),
    ]


class Specific(ctypes.Union):
    _fields_ = [("h264", H264), ("hevc", Hevc), ("reserved", ctypes.c_uint * 1024)]


class Picture(ctypes.Structure):
    """CUVIDPICPARAMS."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("width", "height", "surface", "field", "bottom", "second")),
        ("size", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("slices", ctypes.c_uint),
        ("offsets", ctypes.c_void_p),
        ("reference", ctypes.c_int),
        ("intra", ctypes.c_int),
        ("reserved", ctypes.c_uint * 30),
        ("of", Specific),
    ]


Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class ParserInfo(ctypes.Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("codec", "surfaces", "clock", "threshold", "delay", "flags")),
        ("reserved", ctypes.c_uint * 4),
        ("user", ctypes.c_void_p),
        ("on_sequence", Callback),
        ("on_decode", Callback),
        ("on_display", Callback),
        ("more", ctypes.c_void_p * 8),
    ]


class Packet(ctypes.Structure):
    """CUVIDSOURCEDATAPACKET."""

    _fields_ = [
        ("flags", ctypes.c_ulong),
        ("size", ctypes.c_ulong),
        ("data", ctypes.c_char_p),
        ("timestamp", ctypes.c_longlong),
    ]


def references(figures: Figures) -> None:
    """Let the parser see each carried H.264 and HEVC video that has no container."""
    folder = Path(os.environ[machine.CARRIED_VARIABLE], VIDEOS)
    cases: dict[str, str] = json.loads((folder / CASES).read_text())
    said: dict[str, Any] = {}
    with tarfile.open(folder / ARCHIVE) as archive:
        for name, case in cases.items():
            file = archive.extractfile(name) if case.split()[1] == "raw" else None
            if file is not None:
                said[case] = list(pictures(case.split("_")[0].split()[0], file.read()))
                figures.add(videos=said)


def pictures(codec: str, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield what the parser says of each picture of a video with start codes."""
    library = ctypes.CDLL("libnvcuvid.so.1")
    found: list[dict[str, Any]] = []

    def decode(_: object, pointer: int) -> int:
        picture = ctypes.cast(pointer, ctypes.POINTER(Picture)).contents
        found.append(_told(codec, picture))
        return 1

    calls: list[Callable[[object, int], int]] = [lambda _, __: SURFACES, decode, lambda _, __: 1]
    held = [Callback(call) for call in calls]
    info = ParserInfo(codec=CODECS[codec], surfaces=1, delay=4)
    info.on_sequence, info.on_decode, info.on_display = held
    parser = ctypes.c_void_p()
    _check(library.cuvidCreateVideoParser(ctypes.byref(parser), ctypes.byref(info)))
    for part in (data, b""):
        packet = Packet(flags=0 if part else _END, size=len(part), data=part or None)
        _check(library.cuvidParseVideoData(parser, ctypes.byref(packet)))
    library.cuvidDestroyVideoParser(parser)
    yield from found


def _told(codec: str, picture: Picture) -> dict[str, Any]:
    told = {"surface": picture.surface, "reference": picture.reference, "intra": picture.intra}
    if codec == "hevc":
        hevc = picture.of.hevc
        entries = [(n, hevc.surfaces[n], hevc.orders[n], hevc.is_long[n]) for n in range(16) if hevc.surfaces[n] >= 0]
        sets = [list(hevc.in_before[: hevc.before]), list(hevc.in_after[: hevc.after]), list(hevc.in_long[: hevc.long])]
        return {**told, "order": hevc.order, "total": hevc.total, "sets": sets, "entries": entries}
    h264 = picture.of.h264
    dpb = [entry for entry in h264.dpb if entry.used or entry.not_existing]
    entries = [(e.surface, e.frame_num, e.long_term, e.not_existing, e.used, e.top) for e in dpb]
    return {
        **told,
        "most_frame_num": 1 << (h264.log2_max_frame_num_minus4 + 4),
        "frame_num": h264.frame_num,
        "order": h264.order[0],
        "is_reference": h264.reference,
        "entries": entries,
    }


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"libnvcuvid says {status}")
