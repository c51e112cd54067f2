"""NVDEC on small videos of many kinds, sound and faulty: are its frames those that cores decode?"""

import json
import os
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.gpu import machine
from bench.gpu.cargo import VIDEOS
from bench.gpu.figures import Figures
from bench.gpu.video_files import ARCHIVE, EXPECTED, Outcome, outcomes
from flashcodec import Bitstream, DecodeError, FlashCodec, analyse_bitstream

RIGHT, WRONG, UNMARKED = "right", "wrong", "damage without a mark"
_BATCHES = 3  # of every third frame, each from its own beginning


def compare(figures: Figures) -> None:
    """Decode each carried video on NVDEC: all frames in order, then every third one; count what becomes of them."""
    folder = Path(os.environ[machine.CARRIED_VARIABLE], VIDEOS)
    expected: dict[str, Any] = json.loads((folder / EXPECTED).read_text())
    counts: dict[str, Counter[str]] = {}
    differ: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as scratch, FlashCodec(device="cuda") as codec:
        with tarfile.open(folder / ARCHIVE) as archive:
            archive.extractall(scratch, filter="data")
        for name, video in expected.items():
            said = _compared(codec, Path(scratch, name), video["frames"])
            counts.setdefault(video["kind"], Counter())[said.split(":")[0]] += 1
            if not said.startswith(RIGHT):
                differ.append({"video": video["case"], "said": said})
            figures.add(videos={kind: dict(found) for kind, found in counts.items()}, differ=differ)


def _compared(codec: FlashCodec, path: Path, frames: list[Outcome]) -> str:
    try:
        stream = analyse_bitstream(path)
    except DecodeError as error:
        return f"refused: {error.reason}"
    if stream.num_frames != len(frames):
        return f"{WRONG}: {stream.num_frames} frames, cores have {len(frames)}"
    orders = [list(range(len(frames)))]
    orders += [list(range(first, len(frames), _BATCHES)) for first in range(min(_BATCHES, len(frames)))]
    said = {_told(frames, order, _on_gpu(codec, stream, order)) for order in orders}
    return next((words for words in sorted(said) if not words.startswith(RIGHT)), RIGHT)


def _on_gpu(codec: FlashCodec, stream: Bitstream, wanted: list[int]) -> list[Outcome]:
    try:
        return outcomes(codec, stream, wanted, "gpu")
    except DecodeError as error:
        return [{"error": error.reason}] * len(wanted)


def _told(frames: list[Outcome], order: list[int], found: list[Outcome]) -> str:
    """Say how far NVDEC's outcomes are from the cores'."""
    pairs = [(number, frames[number], outcome) for number, outcome in zip(order, found, strict=True)]
    errors = [outcome["error"] for _, _, outcome in pairs if "error" in outcome]
    for number, right, outcome in pairs:
        if "md5" in outcome and outcome != right:
            return f"{WRONG}: frame {number}" if "md5" in right else f"{UNMARKED}: frame {number}, {right['error']}"
    unlike = [right for _, right, outcome in pairs if "error" in outcome and "md5" in right]
    return f"errors: {len(unlike)} of {len(order)} frames, {errors[0]}" if unlike else RIGHT
