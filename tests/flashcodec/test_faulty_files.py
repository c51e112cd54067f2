"""Files whose containers do not say what is in them: the frames are FFmpeg's, alone and in a row, or errors.

`python flashcodec/fuzz/against_ffmpeg.py --case "..."` runs a case that failed here, and many more without one.
"""

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_files.case import Case, Workshop
from faulty_files.check import Checker
from faulty_files.faults import FAULTS, JOINTS
from faulty_files.strategies import cases
from hypothesis import HealthCheck, Phase, given, seed, settings

pytestmark = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None, reason="needs the command lines of FFmpeg"
)

CASES_PER_FAULT = 5  # of 20 faults; three times as many with --long
FOUND = (  # once wrong in silence, and too rare to be drawn
    "h264_interlaced mp4 joined=2,0,0",
    "h264_open_gops ts begins_late=47",
    "mpeg4_interlaced avi emptied=7",
    "mpeg4_interlaced avi emptied=14",
)


@pytest.fixture(scope="session")
def checker() -> Iterator[Checker]:
    checker = Checker()
    yield checker
    checker.close()


@pytest.mark.parametrize("fault", FAULTS | JOINTS)
def test_frames_of_a_faulty_file_are_ffmpegs(
    pytestconfig: pytest.Config, workshop: Workshop, checker: Checker, tmp_path: Path, fault: str
) -> None:
    @seed(zlib.crc32(fault.encode()))
    @settings(
        max_examples=CASES_PER_FAULT * (3 if pytestconfig.getoption("--long") else 1),
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(fault))
    def check(case: Case) -> None:
        verdict = checker.check(workshop.write(case, tmp_path / "video"), alone=4, seed=case)
        assert verdict.allowed, f"--case '{case}': {verdict.outcome}: {verdict.detail}"

    check()


@pytest.mark.parametrize("found", FOUND)
def test_frames_of_a_file_that_was_once_wrong_are_ffmpegs(
    workshop: Workshop, checker: Checker, tmp_path: Path, found: str
) -> None:
    case = Case.parse(found)
    verdict = checker.check(workshop.write(case, tmp_path / "video"), alone=None, seed=case)
    assert verdict.outcome == "right", verdict.detail
