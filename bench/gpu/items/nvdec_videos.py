"""NVDEC on small videos of many kinds, sound and faulty: are its frames those that cores decode?"""

import hashlib
import json
import os
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import torch

from bench.gpu import machine
from bench.gpu.cargo import VIDEOS
from bench.gpu.figures import Figures
from bench.gpu.video_files import ARCHIVE, CASES
from flashcodec import Bitstream, DecodeError, FlashCodec, RGBLayout, analyse_bitstream

LAYOUT = RGBLayout(96, 128)
RIGHT, WRONG, UNMARKED, ERRORS = "right", "wrong", "damage without a mark", "errors"
_APART = 3  # frames, of requests for some; each begins elsewhere

Outcome = dict[str, str]  # {"md5"} or {"error"} of a frame


def compare(figures: Figures) -> None:
    """Decode each carried video on NVDEC: all frames in order, then every third one; count what becomes of them."""
    folder = Path(os.environ[machine.CARRIED_VARIABLE], VIDEOS)
    cases: dict[str, str] = json.loads((folder / CASES).read_text())
    counts: dict[str, Counter[str]] = {}
    differ: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch, FlashCodec(device="cuda") as codec:
        with tarfile.open(folder / ARCHIVE) as archive:
            archive.extractall(scratch, filter="data")
        for name, case in cases.items():
            said = _compared(codec, Path(scratch, name))
            kind = f"{case.split('_')[0].split()[0]}, {'sound' if len(case.split()) == 2 else 'faulty'}"
            counts.setdefault(kind, Counter())[said["is"]] += 1
            if said["is"] != RIGHT:
                differ.append({"video": case, **said})
            figures.add(videos={kind: dict(found) for kind, found in counts.items()}, differ=differ)


def _compared(codec: FlashCodec, path: Path) -> dict[str, Any]:
    try:
        stream = analyse_bitstream(path)
    except DecodeError as error:
        return {"is": "refused", "why": error.reason}
    count = stream.num_frames
    orders = [list(range(count)), *(list(range(first, count, _APART)) for first in range(min(_APART, count)))]
    said = [_told(order, _outcomes(codec, stream, order, "cpu"), _outcomes(codec, stream, order)) for order in orders]
    return next((words for words in said if words["is"] in (WRONG, UNMARKED)), said[0])


def _outcomes(
    codec: FlashCodec, stream: Bitstream, wanted: list[int], decode_on: Literal["cpu", "gpu"] = "gpu"
) -> list[Outcome]:
    """Decode the frames and return what became of each."""
    found: list[Outcome] = [{"error": "nothing came"} for _ in wanted]
    codec.add_decoding_request(stream, wanted, LAYOUT, decode_on=decode_on, on_error="skip")
    done = False
    while not done:
        output = codec.get_decoding_output()
        assert output is not None
        done = output.done
        if output.error is None:
            data = torch.from_dlpack(output.gpu_data).cpu().numpy().tobytes()
            found[output.first] = {"md5": hashlib.md5(data).hexdigest()}
        else:
            places = range(output.first, output.first + output.count) if output.count else range(len(wanted))
            for place in places:
                found[place] = {"error": output.error.reason}
    return found


def _told(wanted: list[int], cores: list[Outcome], found: list[Outcome]) -> dict[str, Any]:
    """Say how far NVDEC's outcomes are from the cores'; an error is a frame that cores would decode otherwise."""
    for frame, right, outcome in zip(wanted, cores, found, strict=True):
        if "md5" in outcome and outcome != right:
            return {"is": UNMARKED if "error" in right else WRONG, "why": f"frame {frame}", **right}
    errors = [outcome["error"] for outcome, right in zip(found, cores, strict=True) if outcome.keys() != right.keys()]
    return {"is": ERRORS, "why": errors[0], "frames": len(errors), "of": len(wanted)} if errors else {"is": RIGHT}
