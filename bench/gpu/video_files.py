"""Small videos, sound and faulty, whose frames the cores of one machine decode and NVDEC of another is to give.

The cores' frames are FFmpeg's, which flashcodec/fuzz/against_ffmpeg.py shows for thousands of such files. Here they are
larger than there, because NVDEC takes no HEVC below 144 x 144.
"""

import hashlib
import json
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from bench.gpu.machine import ROOT
from flashcodec import Bitstream, DecodeError, FlashCodec, RGBLayout, analyse_bitstream

ARCHIVE, EXPECTED = "videos.tar.xz", "expected.json"
LAYOUT = RGBLayout(96, 128)
#: those whose doubtful files the FFmpeg that travels can look into
_FAULTY = ("h264", "hevc")
_SOUND = ("vp8", "vp9", "av1", "mpeg1", "mpeg2", "mpeg4", "mjpeg")
_SMALL, _LARGE = ("96x64", "64x48"), "208x160"
_DRAWN, _MOST = 6000, 150

Outcome = dict[str, Any]  # {"md5", "damaged"} or {"error"}


def write(folder: Path) -> int:
    """Write the archive of the files and what the cores make of them; return how many there are."""
    sys.path[:0] = map(str, (ROOT / "tests/flashcodec", ROOT / "tests/suite"))
    from faulty_files.case import Case, Workshop
    from faulty_files.clips import CLIPS, available_clips
    from faulty_files.strategies import draw

    for name, clip in CLIPS.items():
        source, encoder = clip.source, clip.encoder
        for size in _SMALL:
            source, encoder = source.replace(size, _LARGE), encoder.replace(f"-s {size}", "-s 176x144")
        CLIPS[name] = replace(clip, source=source, encoder=encoder)
    here = available_clips()
    sound = [Case(name, clip.containers[0], ()) for name, clip in here.items() if clip.codec in (*_FAULTY, *_SOUND)]
    drawn = [case for case in draw(_DRAWN, 1) if CLIPS[case.clip].codec in _FAULTY and case.faults]
    folder.mkdir(parents=True)
    workshop, expected = Workshop(folder / "clips"), {}
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive, FlashCodec(2) as codec:
        for number, case in enumerate(sorted([*sound, *drawn[:_MOST]], key=str)):
            path = workshop.write(case, folder / f"{number}")
            if (frames := _expected(codec, path)) is not None:
                kind = f"{CLIPS[case.clip].codec}, {'faulty' if case.faults else 'sound'}"
                expected[path.name] = {"case": str(case), "kind": kind, "frames": frames}
                archive.add(path, path.name)
            path.unlink()
    shutil.rmtree(workshop.folder)
    (folder / EXPECTED).write_text(json.dumps(expected))
    return len(expected)


def outcomes(
    codec: FlashCodec, stream: Bitstream, wanted: list[int], decode_on: Literal["cpu", "gpu"]
) -> list[Outcome]:
    """Decode the frames and return what became of each."""
    found: list[Outcome] = [{"error": "nothing came"} for _ in wanted]
    codec.add_decoding_request(stream, wanted, LAYOUT, decode_on=decode_on, on_error="skip")
    while True:
        output = codec.get_decoding_output()
        assert output is not None
        places = range(output.first, output.first + max(1, output.count))
        for place in places if output.count or output.error is None else range(len(wanted)):
            if output.error is not None:
                found[place] = {"error": f"{type(output.error).__name__}: {output.error.reason}"}
            else:
                data = output.data if output.gpu_data is None else torch.from_dlpack(output.gpu_data).cpu().numpy()
                assert data is not None
                found[place] = {"md5": hashlib.md5(data.tobytes()).hexdigest()[:12]}
        if output.done:
            return found


def _expected(codec: FlashCodec, path: Path) -> list[Outcome] | None:
    """Return what the cores make of the frames of a file; None if they refuse it."""
    try:
        stream = analyse_bitstream(path)
    except DecodeError:
        return None
    return outcomes(codec, stream, list(range(stream.num_frames)), "cpu")
