"""Decoding on a GPU that is a stand-in, in processes of their own."""

import hashlib
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from flashcodec import VideoDecoder

PROCESS = Path(__file__).with_name("gpu_process.py")
CUDA = 2  # DLPack's number


def run(paths: Path | list[Path], device: str, frames: list[int], decode_on: str = "fastest", *options: str) -> Any:
    """Return what gpu_process.py finds of a request."""
    (found,) = run_all(paths, device, [frames], decode_on, *options)
    return found


def run_all(
    paths: Path | list[Path], device: str, requests: list[list[int]], decode_on: str = "fastest", *options: str
) -> list[Any]:
    """Return what gpu_process.py finds of each request, one after the other in one process."""
    files = ",".join(map(str, paths if isinstance(paths, list) else [paths]))
    frames = [",".join(map(str, request)) for request in requests]
    command = [sys.executable, str(PROCESS), files, device, *frames, "--decode-on", decode_on, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def expected(path: Path, frames: list[int]) -> list[str]:
    """Return the MD5 of each frame as cores decode it."""
    return list(_expected(path, tuple(frames)))


@cache  # several tests ask the same of a long clip
def _expected(path: Path, frames: tuple[int, ...]) -> list[str]:
    decoded = VideoDecoder(path, size=(48, 64)).get_frames_at(list(frames)).data
    return [hashlib.md5(np.ascontiguousarray(frame).tobytes()).hexdigest() for frame in decoded]
