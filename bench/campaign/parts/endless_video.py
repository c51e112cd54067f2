"""A small file of very many large pictures, each of which needs all those before it."""

import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_PIXELS = 8192  # of a side
_PICTURES = 40_000
_FILE_HEAD = 32  # bytes of an IVF file
_PICTURE_HEAD = struct.Struct("<IQ")  # its bytes, and when it is shown


@cache
def endless_video() -> bytes:
    """Return a VP8 video of one key frame and ever the same other one. Raises RuntimeError without FFmpeg."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two.ivf"
        source = f"color=black:s={_PIXELS}x{_PIXELS}:r=30"
        quietly = ["nice", "-n", "19"]  # what makes the file is not what is tried
        command = [
            *quietly,
            "ffmpeg",
            "-nostdin",
            "-v",
            "error",
            "-f",
            "lavfi",
            "-i",
            source,
            "-frames:v",
            "3",
            "-c:v",
            "libvpx",
        ]
        made = subprocess.run([*command, "-cpu-used", "8", "-deadline", "realtime", str(path)], check=False)
        if made.returncode != 0:
            raise RuntimeError("FFmpeg cannot make a VP8 video here")
        data = path.read_bytes()
    first, *others = _pictures(data)
    shown = (first, *(others[-1] for _ in range(_PICTURES - 1)))
    body = b"".join(_PICTURE_HEAD.pack(len(each), time) + each for time, each in enumerate(shown))
    return data[: _FILE_HEAD - 8] + struct.pack("<II", _PICTURES, 0) + body


def _pictures(data: bytes) -> list[bytes]:
    found, at = [], _FILE_HEAD
    while at < len(data):
        size, _ = _PICTURE_HEAD.unpack_from(data, at)
        at += _PICTURE_HEAD.size
        found.append(data[at : at + size])
        at += size
    return found
