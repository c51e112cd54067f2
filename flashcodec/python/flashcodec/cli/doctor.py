"""Run `flashcodec doctor`: whether FlashCodec works here, and what it can decode."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from flashcodec import _core
from flashcodec.cli.console import heading, plain_table, stdout
from flashcodec.cli.video import Json
from flashcodec.errors import DecodeError
from flashcodec.serving import default_codec
from flashcodec.video_decoder import VideoDecoder

CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg2video", "mpeg4", "mjpeg", "prores", "gif")
_NEEDED = ("h264", "hevc", "vp9", "av1")
_HARDWARE_ONLY = "av1"  # FFmpeg's own AV1 decoder; libdav1d and libaom decode in software
_CLIP = Path(__file__).parent / "selftest.mp4"
_INSTALL = "apt install ffmpeg, dnf install ffmpeg-free, or brew install ffmpeg"


@dataclass(frozen=True)
class Check:
    """Report a check. `remedy` is what to do about it; without `ok` FlashCodec does not work here."""

    name: str
    value: str
    ok: bool = True
    remedy: str = ""


def doctor(json: Json = False) -> None:
    """Check whether FlashCodec works on this machine, and which codecs it decodes.

    The exit code is 0 if it decodes its own test clip correctly, else 1.

    \b
    Check the machine:
      flashcodec doctor
    Print JSON for a script:
      flashcodec doctor --json
    """
    checks = [core(), ffmpeg(), decoders(), simd(), cores(), self_test()]
    if json:
        print(_as_json(checks))
    else:
        console = stdout()
        heading(console, "flashcodec doctor")
        console.print(_table(checks))
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def core() -> Check:
    return Check("C++ core", str(_core.__file__))


def ffmpeg() -> Check:
    versions = _core.ffmpeg_versions()
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "FFmpeg")
    return Check("FFmpeg", f"{versions['FFmpeg']} ({libraries})")


def decoders() -> Check:
    found = {codec: _core.decoder_name(codec) for codec in CODECS}
    if found["av1"] == _HARDWARE_ONLY:
        found["av1"] = None
    lacking = [codec for codec in _NEEDED if found[codec] is None]
    names = [codec if codec == name else f"{codec} ({name})" for codec, name in found.items() if name]
    remedy = f"no {', '.join(lacking)}: {_INSTALL}, built with them" if lacking else ""
    return Check("decoders", ", ".join(names), remedy=remedy)


def simd() -> Check:
    best, *others = _core.kernels()
    return Check("SIMD", f"{best} (of {', '.join([best, *others])})")


def cores() -> Check:
    usable, engines = len(os.sched_getaffinity(0)), default_codec().num_engines
    return Check("cores", f"{usable} of {os.cpu_count()} usable, {engines} engines")


def self_test() -> Check:
    """Decode a clip of grey frames, the last first. Frame i has level 40 + 8 i."""
    try:
        decoder = VideoDecoder(_CLIP)
        levels = decoder[::-1].mean(axis=(1, 2, 3))
    except (DecodeError, OSError) as error:
        return Check("self-test", str(error), False, "install FlashCodec again, on an FFmpeg with H.264")
    expected = (24 + 8 * np.arange(len(decoder))[::-1]) * 255 / 219
    if np.abs(levels - expected).max() > 3:
        return Check("self-test", f"wrong frames: grey levels {levels.round().tolist()}", False, "please report this")
    return Check("self-test", f"{len(decoder)} frames of {decoder.metadata.codec} decoded right")


def _as_json(checks: list[Check]) -> str:
    return json.dumps({"ok": all(c.ok for c in checks), "checks": [asdict(c) for c in checks]}, indent=2)


def _table(checks: list[Check]) -> Table:
    table = plain_table(show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in checks:
        value = Text(check.value)
        if check.remedy:
            value.append(f"\n→ {check.remedy}", "yellow")
        table.add_row(_mark(check), Text(check.name, "cyan"), value)
    return table


def _mark(check: Check) -> Text:
    if not check.ok:
        return Text("✗", "bold red")
    return Text("!", "bold yellow") if check.remedy else Text("✓", "green")
