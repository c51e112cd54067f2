"""Small videos, sound and faulty, that cores and NVDEC must decode to the same frames.

They are drawn as those of flashcodec/fuzz/against_ffmpeg.py, which shows for thousands of them that the cores' frames
are FFmpeg's. Here they are larger, because NVDEC takes no HEVC below 144 x 144; and of the codecs that the FFmpeg
which travels decodes.
"""

import json
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

from bench.gpu.machine import ROOT

ARCHIVE, CASES = "videos.tar.xz", "cases.json"
_CODECS, _CONTAINERS = ("h264", "hevc"), ("mp4", "fragments", "mkv", "ts", "raw")
_SMALL, _LARGE = ("96x64", "64x48"), "208x160"
_DRAWN, _MOST = 6000, 150
#: what is lost of a video that has no container, for the parser alone
_LOST = (
    *(f"{clip} raw {fault}" for clip in ("h264", "h264_low_delay", "hevc") for fault in ("lost=7,0", "lost=20,2")),
    *("h264_open_gops raw", "hevc_open_gops raw", "hevc_layers raw", "h264_intra_refresh raw", "hevc raw", "h264 raw"),
    "h264_low_delay raw joined=30,25,0",
)


def write(folder: Path) -> int:
    """Write the archive of the files and the cases that they are; return how many there are."""
    sys.path[:0] = map(str, (ROOT / "tests/flashcodec", ROOT / "tests/suite"))
    from faulty_files.case import Case, Workshop
    from faulty_files.clips import CLIPS, available_clips
    from faulty_files.strategies import draw

    for name, clip in CLIPS.items():
        source, encoder = clip.source, clip.encoder
        for size in _SMALL:
            source, encoder = source.replace(size, _LARGE), encoder.replace(f"-s {size}", "-s 176x144")
        CLIPS[name] = replace(clip, source=source, encoder=encoder)
    sound = [Case(name, "mp4", ()) for name, clip in available_clips().items() if clip.codec in _CODECS]
    drawn = [case for case in draw(_DRAWN, 1) if CLIPS[case.clip].codec in _CODECS and case.faults]
    drawn = [case for case in dict.fromkeys(drawn) if case.container in _CONTAINERS][:_MOST]
    folder.mkdir(parents=True)
    workshop, cases = Workshop(folder / "clips"), {}
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        for number, case in enumerate([*sound, *map(Case.parse, _LOST), *drawn]):
            path = workshop.write(case, folder / f"{number}")
            cases[path.name] = str(case)
            archive.add(path, path.name)
            path.unlink()
    shutil.rmtree(workshop.folder)
    (folder / CASES).write_text(json.dumps(cases))
    return len(cases)
