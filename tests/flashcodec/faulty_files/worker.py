"""A process that decodes files with FlashCodec in the ways that must agree, a line of JSON for each line on its input.

Input: {"path", "alone": frames to ask a fresh decoder for, "batches": lists of frames}, numbers modulo the frames there
are. Output: see `Decoded` in check.py.
"""

import hashlib
import json
import sys
from typing import Any

import numpy as np
from flashcodec.reading import Engines

import flashcodec
from flashcodec import DecodeError, _core

_RAW = _core.Layout(_core.LayoutKind.RAW, 0, 0)


def decode(path: str, frames: list[int] | None, threads: int, report: bool) -> list[dict[str, Any]]:
    """Return {"md5", "damaged"} or {"error"} for each frame, decoded by threads that have decoded nothing before."""
    engines = Engines(threads)
    session = engines.session()
    stream = flashcodec.analyse_bitstream(path)
    numbers = np.arange(stream.num_frames) if frames is None else np.array(frames)
    found: list[dict[str, Any]] = [{}] * len(numbers)
    session.add(stream.core, numbers, _RAW, report=report)
    seen = 0
    try:
        while seen < len(numbers):
            output = session.take(None)
            assert output is not None
            if output.error is not None and output.count == 0:
                raise output.error
            seen += output.count
            found[output.first] = _outcome(output, report)
        return found
    finally:
        engines.close()


def _outcome(output: _core.Output, report: bool) -> dict[str, Any]:
    if output.error is not None:
        return {"error": _described(output.error)}
    if output.damaged and report:
        return {"error": "concealed"}
    return {"md5": hashlib.md5(output.take_data().tobytes()).hexdigest(), "damaged": output.damaged}


def _described(error: DecodeError) -> str:
    return f"{type(error).__name__}: {error.reason}"


def examine(path: str, alone: list[int], batches: list[list[int]]) -> dict[str, Any]:
    try:
        stream = flashcodec.analyse_bitstream(path)
        sequence = decode(path, None, threads=2, report=True)
    except DecodeError as error:
        return {"refused": _described(error)}
    count = stream.num_frames
    requests = [[frame % count] for frame in alone] + [[frame % count for frame in batch] for batch in batches]
    answers = []
    for frames in requests:
        try:
            answers.append({"frames": frames, "outcomes": decode(path, frames, threads=1, report=False)})
        except DecodeError as error:
            answers.append({"frames": frames, "outcomes": [{"error": _described(error)}] * len(frames)})
    torn = any(doubt.claim == "frames" for doubt in stream.doubts)
    return {"sequence": sequence, "times": stream.pts_seconds.tolist(), "torn": torn, "answers": answers}


def main() -> None:
    _core.mute_ffmpeg()
    for line in sys.stdin:
        print(json.dumps(examine(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
