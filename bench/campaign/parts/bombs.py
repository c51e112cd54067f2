"""Small files that claim to be, or become, very large ones."""

import base64
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from bench.campaign.asking import CHAT, Request, asks, kind
from bench.campaign.cases import Kind
from bench.campaign.parts.media_files import MEDIA_STATUSES, Medium, question, real_files

_PNG = b"\x89PNG\r\n\x1a\n"
_SIDES = ((1, 1), (65_535, 65_535), (2**31 - 1, 2**31 - 1), (2**31 - 1, 1), (1, 2**31 - 1), (0, 0), (11_300, 11_300))
_GRAY, _PALETTE, _RGBA = 0, 3, 6


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _png(width: int, height: int, rows: bytes, *, depth: int = 8, color: int = _GRAY, before: bytes = b"") -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return _PNG + header + before + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


@cache
def _zeros(size: int) -> bytes:
    """Return so many zeros, compressed: a thousandth of them."""
    compressor = zlib.compressobj(9)
    piece = bytes(1 << 20)
    pieces = [compressor.compress(piece) for _ in range(size >> 20)]
    return b"".join([*pieces, compressor.compress(bytes(size & 0xFFFFF)), compressor.flush()])


def _png_bomb(random: Random) -> bytes:
    width, height = random.choice(_SIDES)
    depth, color = random.choice(((1, _GRAY), (8, _GRAY), (16, _RGBA), (8, _PALETTE)))
    return _png(width, height, _zeros(random.choice((0, 1 << 20, 1 << 26))), depth=depth, color=color)


def _png_of_bits(random: Random) -> bytes:
    """Return a whole image of one bit a pixel, as large as images may be, in some KB."""
    side = random.choice((11_300, 11_400, 20_000))
    return _png(side, side, _zeros((side // 8 + 1) * side), depth=1)


def _png_of_texts(random: Random) -> bytes:
    """Return an image with a compressed text, or a color profile, of 64 MiB."""
    name = random.choice((b"zTXt", b"iCCP"))
    return _png(
        8, 8, zlib.compress(bytes(9 * 8)), before=_chunk(name, b"a\0\0" + _zeros(1 << 26)) * random.choice((1, 20))
    )


def _apng(random: Random) -> bytes:
    frames = random.choice((2, 10_000, 2**31 - 1))
    control = _chunk(b"acTL", struct.pack(">II", frames, 0))
    one = _chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 8, 8, 0, 0, 1, 1, 0, 0))
    return _png(8, 8, zlib.compress(bytes(9 * 8)), before=control + one * min(frames, 20_000))


def _gif(random: Random) -> bytes:
    """Return an animation on a large canvas, of many frames of one pixel."""
    side = random.choice((1, 1000, 11_300, 65_535))
    screen = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6)
    place = struct.pack("<HHHHB", 0, 0, *random.choice(((1, 1), (side, side))), 0)
    frame = b"!\xf9\x04\x04\x01\x00\x00\x00," + place + b"\x02\x02D\x01\x00"
    return screen + frame * random.choice((1, 100, 20_000)) + b";"


def _webp(random: Random) -> bytes:
    side = random.choice((1, 16_383, 2**24 - 1))
    size = struct.pack("<I", side)[:3]
    extended = b"VP8X" + struct.pack("<I", 10) + random.choice((b"\x02", b"\0")) + b"\0\0\0" + size + size
    lossless = b"VP8L" + struct.pack("<I", 16) + b"\x2f" + b"\xff\xff\xff\x0f" + bytes(11)
    frame = b"ANMF" + struct.pack("<I", 40) + b"\0" * 6 + size + size + b"\0" * 4 + lossless
    body = b"WEBP" + extended + random.choice((lossless, frame * 5000, b"VP8 " + struct.pack("<I", 10) + bytes(10)))
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _jpeg(random: Random) -> bytes:
    """Return the sample image with other dimensions in its header, and maybe very many scans."""
    data = bytearray(next(file.data for file in real_files(None) if file.kind == "image"))
    at = min(found for found in (data.find(b"\xff\xc0"), data.find(b"\xff\xc2")) if found >= 0)
    width, height = random.choice(
        ((65_535, 65_535), (11_300, 11_300), (65_535, 1), (1, 65_535), (0, 0), (16_384, 7000))
    )
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    if random.random() < 0.3:
        scan = data.find(b"\xff\xda")
        data[scan:scan] = b"\xff\xfe\xff\xff" + bytes(65_533) + data[scan : scan + 500] * 2000
    return bytes(data)


def _other(random: Random) -> bytes:
    """Return a BMP, TIFF or QOI of giant dimensions, which nobody needs to know."""
    side = random.choice((65_535, 2**31 - 1))
    bmp = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, side, -side, 1, 24, 0, 0, 0, 0, 0, 0)
    tags = [(256, side), (257, side), (258, 8), (259, 1), (262, 1), (273, 8), (278, side), (279, side)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    tiff = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return random.choice((bmp, tiff, b"qoif" + struct.pack(">IIBB", side, side, 3, 0) + bytes(8)))


def _image(make: Callable[[Random], bytes]) -> Callable[[Random], Request]:
    def request(random: Random) -> Request:
        return asks(
            CHAT, question(Medium(make(random), "image" if random.random() < 0.8 else "video")), *MEDIA_STATUSES
        )

    return request


@cache
def long_video() -> bytes:
    """Return a video of 8192 x 8192 and thousands of frames, all alike: by FFmpeg, else by a header that lies."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.mp4", Path(folder) / "many.mp4"
        made = _ffmpeg("-f", "lavfi", "-i", "color=black:s=8192x8192:r=30", "-frames:v", "4", "-c:v", "libx264",
                       "-preset", "ultrafast", "-coder", "1", "-g", "4", str(few))  # fmt: skip
        if made and _ffmpeg("-stream_loop", "700", "-i", str(few), "-c", "copy", str(many)):
            return many.read_bytes()
    return _lying_video(8192)


def _ffmpeg(*arguments: str) -> bool:
    try:
        command = ["ffmpeg", "-nostdin", "-v", "error", *arguments]
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _lying_video(side: int) -> bytes:
    """Return the sample video whose boxes tell of another size."""
    data = bytearray(next(file.data for file in real_files(None) if file.kind == "video"))
    entry, header = data.find(b"avc1", data.find(b"stsd")), data.find(b"tkhd")
    data[entry + 28 : entry + 32] = struct.pack(">HH", side, side)
    data[header + 80 : header + 88] = struct.pack(">II", side << 16, side << 16)
    return bytes(data)


def _large_video(random: Random) -> Request:
    data = random.choice((long_video, lambda: _lying_video(random.choice((0, 8192, 65_535)))))()
    frames = random.choice((1, 8, 64, 768))
    return asks(
        CHAT, question(Medium(data, "video"), media_io_kwargs={"video": {"num_frames": frames}}), *MEDIA_STATUSES
    )


def _counts_that_lie(random: Random) -> Request:
    """Return a video of which a table has far more entries than bytes."""
    data = bytearray(next(file.data for file in real_files(None) if file.kind == "video"))
    at = data.find(random.choice((b"stsz", b"stts", b"ctts", b"stco", b"stsc", b"stss", b"elst")))
    if at >= 0:
        data[at + 8 : at + 12] = random.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\x10\0\0", b"\0\0\0\0"))
    return asks(CHAT, question(Medium(bytes(data), "video")), *MEDIA_STATUSES)


def _inline_100_mb(random: Random) -> Request:
    url = "data:image/png;base64," + base64.b64encode(bytes(100_000_000)).decode()
    return asks(
        CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}, 413
    )


KINDS: list[Kind] = [
    kind("PNG of giant dimensions", 6, _image(_png_bomb)),
    kind("PNG of one bit a pixel", 1.5, _image(_png_of_bits)),
    kind("PNG with giant texts", 1.5, _image(_png_of_texts)),
    kind("animated PNG", 2, _image(_apng)),
    kind("GIF of many frames", 3, _image(_gif)),
    kind("WebP of giant dimensions", 3, _image(_webp)),
    kind("JPEG of giant dimensions", 4, _image(_jpeg)),
    kind("BMP, TIFF and QOI", 2, _image(_other)),
    kind("videos of 8192 x 8192", 1, _large_video),
    kind("tables that lie", 4, _counts_that_lie),
    kind("data: of 100 MB", 0.1, _inline_100_mb),
]
