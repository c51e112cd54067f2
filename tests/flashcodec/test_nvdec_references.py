"""NVDEC's parser puts other pictures in the place of lost ones: what it said of some videos on an H100 tells."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_cuda
import pytest

SAID: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("nvdec_pictures.json").read_text())
#: the first picture that refers to a lost one, of those decoded
INCOMPLETE = {
    "hevc raw lost=7,0": 7,
    "hevc raw lost=20,2": None,  # nothing refers to either
    "hevc_one_gop raw lost=52,59": 16,
    "h264_low_delay raw lost=7,0": 7,
    "h264_low_delay raw lost=20,2": 20,
    "h264_low_delay raw joined=30,25,0": None,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("references") / "check"
    sources = (Path(__file__).with_name("check_references.cpp"), "engines/nvdec/reference_check.cpp")
    command = [fake_cuda.cxx(), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", ".", "-o", path, *sources]
    subprocess.run(command, check=True, cwd=fake_cuda.FLASHCODEC)
    return path


def complete(program: Path, video: str, pictures: Sequence[dict[str, Any]], begins: Sequence[bool]) -> list[bool]:
    codec = "hevc" if video.startswith("hevc") else "h264"
    lines = [" ".join(map(str, (int(b), p["surface"], *_numbers(p)))) for b, p in zip(begins, pictures, strict=True)]
    done = subprocess.run([program, codec], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [answer == "1" for answer in done.stdout]


def _numbers(picture: dict[str, Any]) -> list[int]:
    if "frame_num" in picture:
        return [picture["numbers"].bit_length() - 5, picture["frame_num"], picture["reference"]]
    sets = [number for places in picture["sets"] for number in (len(places), *places)]
    return [picture["order"], picture["references"], *sets, *(n for entry in picture["entries"] for n in entry)]


@pytest.mark.parametrize("video", SAID)
def test_only_what_refers_to_a_lost_picture_is_incomplete(program: Path, video: str) -> None:
    pictures = SAID[video]
    answers = complete(program, video, pictures, [number == 0 for number in range(len(pictures))])
    assert next((number for number, answer in enumerate(answers) if not answer), None) == INCOMPLETE.get(video)


def test_pictures_that_lead_a_start_may_be_left_out(program: Path) -> None:
    video = "h264_open_gops raw"
    pictures = [*SAID[video][9:10], *SAID[video][13:21]]  # less three, of which one is referred to by others like it
    begins = [True, True] + [False] * (len(pictures) - 2)
    assert all(complete(program, video, pictures, begins))
    assert complete(program, video, pictures, [True] + [False] * (len(pictures) - 1))[1] is False
