"""What a process has after it opened and used decoders, again and again: prints JSON, a line after each round.

`left_behind.py FILE KIND HOW`, run with MALLOC_ARENA_MAX=1: more arenas hold more or less of what is free.
"""

import ctypes
import gc
import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

from flashcodec import VideoDecoder

ROUNDS = 6
USES = 20
PATIENCE = 120.0  # seconds


def decoders(path: Path) -> dict[str, Callable[[], VideoDecoder]]:
    data = path.read_bytes()
    return {
        "path": lambda: VideoDecoder(path),
        "bytes": lambda: VideoDecoder(data),
        "file": lambda: VideoDecoder(io.BytesIO(data)),
        "own threads": lambda: VideoDecoder(path, num_threads=2),
    }


def use(make: Callable[[], VideoDecoder], how: str) -> None:
    decoder = make()
    if how == "in mid-stream":
        next(decoder.stream(range(0, 96, 2)))
    elif how != "only opened":
        decoder.get_frame_at(21)
    if how == "closed":
        decoder.close()


def left() -> dict[str, int]:
    """Memory in bytes, open files, threads."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    process = psutil.Process()
    return {"memory": process.memory_info().rss, "files": process.num_fds(), "threads": process.num_threads()}


def settled(first: dict[str, int]) -> dict[str, int]:
    """What is left when the engine, which keeps the last stream for a second, has given up its files and threads."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 20)):
        now = left()
        if now["files"] <= first["files"] and now["threads"] <= first["threads"]:
            break
        pause.wait(0.05)
    return now


def main(path: str, kind: str, how: str) -> None:
    make = decoders(Path(path))[kind]
    states = []
    for _ in range(ROUNDS):
        for _ in range(USES):
            use(make, how)
        states.append(left())
    print(json.dumps([*states, settled(states[0])]))


if __name__ == "__main__":
    main(*sys.argv[1:])
