"""Whether FlashCodec's frames of a file are FFmpeg's.

The rules, for a file of which FFmpeg has no complaint:

1. The frames in sequence are FFmpeg's: as many, in its order, with its pixels, and none is marked as damaged. If some
   of them are errors, rule 5 holds for the others.
2. A frame asked for alone, from a decoder that has decoded nothing yet, and in a batch is the frame in sequence.
3. Times are those of FFmpeg's frames where these have times of their own, in order; else they do not go back, nor where
   FlashCodec says that not all packets have frames.
4. No file makes the process hang or end.

FFmpeg conceals damage and goes on, and what it makes up depends on what it decoded before, so a decoder that starts
elsewhere may make up something else. For a file that FFmpeg complains of:

5. The frames in sequence that are not marked are FFmpeg's, in its order; any may be marked, or be errors.
6. As 2, for frames that are not marked in either.
7. A file may be refused with an error of FlashCodec's.

A file says nothing of which FFmpeg gives no frames, or others each time that it is asked.
"""

import json
import random
import select
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from faulty_files.reference import Reference

HANG_SECONDS = 120.0  # far above what any case takes; a process that takes longer is killed
RIGHT, MARKED, RAISED, REFUSED = "right", "marked", "raised without a complaint", "refused"
NO_REFERENCE = "no reference"
MOST_REPEATS = 12  # of FFmpeg's command line before a difference counts: on a busy machine it reads memory by chance
CONCEALED = "concealed"  # the worker's word for frames that are marked as damaged
_TICK_SECONDS = 1.5e-3  # the times of Matroska are rounded to milliseconds

Answers = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """`outcome` is one of the names above, which the rules allow, or which rule is broken."""

    outcome: str
    detail: str = ""

    @property
    def allowed(self) -> bool:
        return self.outcome in (RIGHT, MARKED, RAISED, REFUSED, NO_REFERENCE)


class Checker:
    """Decodes files in a process of its own (worker.py), a new one after one that died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def check(self, path: Path, alone: int | None, seed: object = 0) -> Verdict:
        """Compare with FFmpeg; `alone` is how many frames to ask a decoder of their own for, None all."""
        reference = Reference.of(path)
        count = max(1, len(reference.frames))
        rng = random.Random(str(seed))
        single = list(range(count)) if alone is None else rng.sample(range(count), min(alone, count))
        batch = sorted(rng.sample(range(count), (count + 2) // 3))
        found = verdict(reference, self._answers(path, single, [batch]))
        if found.allowed or all(Reference.of(path).frames == reference.frames for _ in range(MOST_REPEATS)):
            return found
        return Verdict(NO_REFERENCE, "FFmpeg decodes other frames each time")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self, path: Path, alone: list[int], batches: list[list[int]]) -> Answers:
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"path": str(path), "alone": alone, "batches": batches}) + "\n")
        process.stdin.flush()
        hangs = not select.select([process.stdout], [], [], HANG_SECONDS)[0]
        line = "" if hangs else process.stdout.readline()
        if line:
            answers: Answers = json.loads(line)
            return answers
        self.close()
        return {"died": "it hangs" if hangs else f"exit status {process.returncode}"}


def _start() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "faulty_files.worker"]
    folder = Path(__file__).parents[1]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)


def verdict(reference: Reference, ours: Answers) -> Verdict:
    if "died" in ours:
        return Verdict("died", ours["died"])
    if "refused" in ours:
        wrongly = reference.frames and not reference.complaints
        return Verdict("refused wrongly" if wrongly else REFUSED, ours["refused"])
    if not reference.frames:
        return Verdict(NO_REFERENCE, "FFmpeg decodes no frames")
    raised = any(frame.get("error", CONCEALED) != CONCEALED for frame in ours["sequence"])
    lenient = raised or bool(reference.complaints)
    broken = _differs_alone(ours) or (_damaged if lenient else _intact)(reference, ours)
    if broken is not None:
        return broken
    if raised and not reference.complaints:
        return Verdict(RAISED, next(frame["error"] for frame in ours["sequence"] if "error" in frame))
    outcomes = [*ours["sequence"], *(outcome for answer in ours["answers"] for outcome in answer["outcomes"])]
    return Verdict(MARKED if any("error" in outcome or outcome["damaged"] for outcome in outcomes) else RIGHT)


def _differs_alone(ours: Answers) -> Verdict | None:
    for answer in ours["answers"]:
        for frame, outcome in zip(answer["frames"], answer["outcomes"], strict=True):
            in_sequence = ours["sequence"][frame].get("md5")
            if "md5" in outcome and not outcome["damaged"] and in_sequence not in (None, outcome["md5"]):
                return Verdict("alone is not sequence", f"frame {frame} of {answer['frames']}")
    return None


def _damaged(reference: Reference, ours: Answers) -> Verdict | None:
    rest = iter(reference.frames)
    for number, frame in enumerate(ours["sequence"]):
        if "md5" in frame and frame["md5"] not in rest:
            return Verdict("damage without a mark", f"frame {number}; FFmpeg: {[*reference.complaints, None][0]}")
    return None


def _intact(reference: Reference, ours: Answers) -> Verdict | None:
    sequence, frames = ours["sequence"], reference.frames
    if len(sequence) != len(frames):
        return Verdict("count", f"{len(sequence)} frames, FFmpeg has {len(frames)}")
    wrong = [n for n, right in enumerate(frames) if sequence[n].get("md5", right) != right]
    if wrong:
        return Verdict("pixels", f"frames {wrong}")
    asked = [*enumerate(sequence)]
    for answer in ours["answers"]:
        asked += zip(answer["frames"], answer["outcomes"], strict=True)
    marked = [f"frame {n}: {o.get('error', 'damaged')}" for n, o in asked if "error" in o or o["damaged"]]
    return Verdict("marked wrongly", marked[0]) if marked else _wrong_times(reference, ours)


def _wrong_times(reference: Reference, ours: Answers) -> Verdict | None:
    times = ours["times"]
    back = [n for n, (before, after) in enumerate(pairwise(times)) if after < before]
    if back:
        return Verdict("times go back", f"after frames {back}")
    if ours["torn"] or _same(times, reference.times):
        return None
    exact = reference.exact_times()
    if exact is None or _same(times, exact):
        return None
    n = next(n for n, right in enumerate(exact) if abs(times[n] - right) > _TICK_SECONDS)
    return Verdict("times", f"frame {n} at {times[n]:.3f}, FFmpeg has {exact[n]:.3f}")


def _same(times: list[float], right: list[float]) -> bool:
    return all(abs(a - b) <= _TICK_SECONDS for a, b in zip(times, right, strict=True))
