"""Read MVBench: twenty tasks on short videos of eleven other data sets, one of them as folders of frames.

Layout: the hub's OpenGVLab/MVBench; the tasks' folders are in OpenGVLab/Ask-Anything, video_chat2/mvbench.ipynb.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.choices import with_right_text
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import Seconds, json_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium

FRAMES = 16  # images at most that are sent of a folder of frames
_FRAME_RATE = 3.0  # frames a second in a folder of them
_FRAME_FOLDERS = "tvqa/frames_fps3_hq"

_FOLDERS = {  # below video/
    "action_sequence": "star/Charades_v1_480",
    "action_prediction": "star/Charades_v1_480",
    "action_antonym": "ssv2_video",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "unexpected_action": "FunQA_test/test",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_v1_480",
    "object_shuffle": "perception/videos",
    "moving_direction": "clevrer/video_validation",
    "action_localization": "sta/sta_video",
    "scene_transition": "scene_qa/video",
    "action_count": "perception/videos",
    "moving_count": "clevrer/video_validation",
    "moving_attribute": "clevrer/video_validation",
    "state_change": "perception/videos",
    "fine_grained_pose": "nturgbd",
    "character_order": "perception/videos",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": _FRAME_FOLDERS,
    "counterfactual_inference": "clevrer/video_validation",
}


class _Row(msgspec.Struct):
    video: str  # may be a path
    question: str
    candidates: list[str]
    answer: str
    start: Seconds | None = None
    end: Seconds | None = None


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    for path in annotations:
        for number, (where, row) in enumerate(json_rows(path, _Row), 1):
            media = _media(root / "video" / _FOLDERS[path.stem] / row.video, row, _FOLDERS[path.stem])
            if not media:
                yield Unusable(where, f"nothing lies in its clip from {row.start} to {row.end} s")
                continue
            sample = Sample(
                id=f"{path.stem}/{number}",
                where=where,
                question=row.question,
                media=media,
                task=path.stem,
                choices=tuple(row.candidates),
            )
            yield with_right_text(sample, row.answer)


def _media(path: Path, row: _Row, folder: str) -> tuple[Medium, ...]:
    start, end = row.start or 0.0, float("inf") if row.end is None else row.end
    if start >= end:
        return ()
    if folder == _FRAME_FOLDERS and os.path.isdir(path):
        return tuple(Medium(kind="image", path=str(frame)) for frame in _frames(path, start, end))
    return (Medium(kind="video", path=str(path), start=row.start, end=row.end),)


def _frames(folder: Path, start: float, end: float) -> list[Path]:
    """Return the frames shown in [start, end) seconds, evenly spaced if there are too many."""
    frames = sorted(folder.glob("*.jpg"))
    clip = [frame for number, frame in enumerate(frames) if start <= number / _FRAME_RATE < end]
    if len(clip) <= FRAMES:
        return clip
    return [clip[(2 * number + 1) * len(clip) // (2 * FRAMES)] for number in range(FRAMES)]


MVBENCH = Loader(
    annotations=tuple(f"json/{task}.json" for task in _FOLDERS),
    layout="json/<task>.json and video/<folder of the task>/<video>, as the archives of video/ unpack",
    read=_read,
)
