"""The decoder benchmark finds wrong frames, survives its contestants, and runs from end to end on tiny files."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import reference, shrunk, wrong_frames
from contestant import Task
from measure import Contender
from numbers_page import BEGIN, END, renewed
from peers import Contestant
from report import write
from results import Figures, Floors, RowResult, joined
from rich.console import Console
from tasks import TASKS
from videos import ensure

from flashcodec import VideoDecoder

REPOSITORY = Path(__file__).parents[2]
SHORT = "short_360p_2s.mp4"

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="the ffmpeg command is not installed")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("videos")


@pytest.fixture(scope="session")
def short(folder: Path) -> Path:
    return ensure([SHORT], folder, Console(stderr=True), quick=True)[SHORT]


@pytest.fixture(scope="session")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds in which no two frames are alike."""
    path = tmp_path_factory.mktemp("moving") / "moving.mp4"
    source = ["-f", "lavfi", "-i", "mandelbrot=s=320x180:r=25:end_scale=0.01:end_pts=100", "-t", "2"]
    encode = ["-c:v", "libx264", "-pix_fmt", "yuv420p"]
    subprocess.run(["ffmpeg", "-v", "error", *source, *encode, str(path)], check=True)
    return path


@needs_ffmpeg
@pytest.mark.parametrize("late", [-5, -1, 0, 1, 5])
def test_frames_of_another_index_count_as_wrong(moving: Path, tmp_path: Path, late: int) -> None:
    references = reference(moving, tmp_path)
    asked = np.arange(5, len(references) - 5)
    frames = shrunk(VideoDecoder(moving, dimension_order="NHWC").get_frames_at(asked + late).data)
    assert wrong_frames(frames, asked, references) == (0 if late == 0 else len(asked))


@needs_ffmpeg
def test_damaged_and_missing_frames_count_as_wrong(short: Path, tmp_path: Path) -> None:
    references = reference(short, tmp_path)
    asked = np.arange(len(references))
    frames = references.copy()
    frames[7, 32:96] = 128
    assert wrong_frames(frames, asked, references) == 1
    assert wrong_frames(frames[1:], asked, references) == len(asked)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import os\ndef frames(*_): os.abort()", "crashed with signal 6"),
        ("def frames(*_): raise OSError('no such codec')", "OSError: no such codec"),
        ("import threading\ndef frames(*_): threading.Event().wait()", "timed out after 3 s"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_contestant_that_fails_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, failure: str
) -> None:
    (tmp_path / "failing").mkdir()
    (tmp_path / "failing" / "module.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    hangs = failure.startswith("timed out")
    contender = Contender(Contestant("failing.module"), tmp_path, timeout=3 if hangs else 300)
    if contender.failure is None:
        assert contender.run(Task("frames", "frames", ["x"], [[0]], None, 1)) is None
    assert contender.failure == failure
    contender.close()


def test_a_contestant_runs_in_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "environment")], check=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "tells").mkdir()
    (tmp_path / "tells" / "prefix.py").write_text("import sys\ndef frames(*_): raise OSError(sys.prefix)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(np.__file__).parents[1]}")
    for name, prefix in (("environment", tmp_path / "environment"), ("folder", sys.prefix)):
        contender = Contender(Contestant("tells.prefix", package=f"{name}==1.0"), tmp_path, timeout=300)
        contender.run(Task("frames", "frames", ["x"], [[0]], None, 1))
        contender.close()
        assert contender.failure == f"OSError: {prefix}"


def test_a_peer_with_wrong_frames_is_never_the_best() -> None:
    row = RowResult("", "", "", 2)
    row.figures = {
        "FlashCodec": Figures(walls=[2.0, 2.0], wrong=0),
        "quick and wrong": Figures(walls=[1.0, 1.0], wrong=1),
        "crashed": Figures(walls=[1.0], wrong=0, failure="crashed"),
        "right": Figures(walls=[3.0, 5.0], wrong=0),
    }
    assert row.best_peer() == "right"
    assert row.ratios("right") == [1.5, 2.5]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("count", [1, 3, 50, 12_000])
def test_tasks_ask_for_frames_that_are_there(name: str, count: int) -> None:
    indices = TASKS[name].indices(count, 25)
    assert indices.dtype == np.int64
    assert len(indices) > 0
    assert 0 <= indices.min() <= indices.max() < count


@needs_ffmpeg
def test_the_quick_run_measures_and_writes_its_results(short: Path, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("torchcodec")
    script = str(REPOSITORY / "bench" / "decode" / "run.py")
    (tmp_path / "installed" / "torchcodec").mkdir(parents=True)  # empty: the TorchCodec of this environment
    chosen = ["--tasks", "latency", "--peers", "TorchCodec,PyAV split", "--before", sys.executable]
    folders = ["--folder", str(folder), "--installed", str(tmp_path / "installed"), "--out", str(tmp_path)]
    subprocess.run([sys.executable, script, "--quick", *chosen, *folders], check=True, capture_output=True)
    (row,) = json.loads((tmp_path / "decode.json").read_text())["rows"]
    for name in ("FlashCodec", "FlashCodec before", "TorchCodec"):
        figures = row["figures"][name]
        assert figures["failure"] is None
        assert figures["wrong"] == 0
        assert figures["walls"][0] > 0
        assert figures["peak"] >= 0
    assert row["figures"]["PyAV split"]["failure"] == "not installed"
    table = (tmp_path / "decode.md").read_text()
    assert "not installed" in table
    assert "all right" in table
    assert (tmp_path / "decode.png").stat().st_size > 0
    assert (tmp_path / "decode-floor.png").stat().st_size > 0


def row_of(title: str, ratio: float) -> RowResult:
    """Return a row in which a peer takes so many times as long as FlashCodec."""
    ours = Figures(walls=[2.0], cpus=[4.0], wrong=0)
    peer = Figures(walls=[2.0 * ratio], cpus=[1.0], wrong=0)
    return RowResult(title, "", "", 1, Floors([1.0], [2.0]), {"FlashCodec": ours, "PyAV split": peer})


def document(**ratios: float) -> dict[str, Any]:
    """Return a result file with rows of these titles."""
    machine, versions = {"cpu": "a CPU", "date": "today"}, {"av": "19.0.2"}
    rows = [dataclasses.asdict(row_of(title, ratio)) for title, ratio in ratios.items()]
    return {"machine": machine, "versions": versions, "cores": 2, "command": "run.py", "rows": rows}


def test_the_page_tells_where_flashcodec_is_slower() -> None:
    page = f"above\n{BEGIN}of old\n{END}below\n"
    text = renewed(page, document(won=1.5, lost=0.8))
    assert "| won | 2.00 s | PyAV split | 1.50 | none |  | 2.00 |" in text
    assert "| lost | 2.00 s | PyAV split | **0.80** |" in text
    assert "slower than the best peer here: lost (bold)" in text
    assert (text.startswith(f"above\n{BEGIN}"), text.endswith(f"{END}below\n"), "of old" in text) == (True, True, False)
    assert renewed(text, document(won=1.5, lost=0.8)) == text
    assert "nowhere slower" in renewed(text, document(won=1.5))


def test_rows_are_added_to_those_of_the_same_machine_and_versions() -> None:
    old, new = document(first=1.0, second=1.0), document(second=2.0)
    both = joined(new, old, ["second"])
    assert [(row["title"], row["figures"]["PyAV split"]["walls"]) for row in both["rows"]] == [
        ("first", [2.0]),
        ("second", [4.0]),
    ]
    for changed in ({"machine": {"cpu": "another"}}, {"versions": {"av": "18.1.0"}}):
        with pytest.raises(ValueError, match="another machine or of other versions"):
            joined(new, old | changed, ["second"])


def test_frames_on_a_gpu_need_one() -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    command = [sys.executable, str(REPOSITORY / "bench/decode/run.py"), "--device", "cuda", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no NVIDIA driver here" in done.stderr


def test_times_on_a_gpu_are_drawn_beside_the_floor_of_its_units(tmp_path: Path) -> None:
    figures = {
        "FlashCodec": Figures(walls=[0.3, 0.31], cpus=[0.1, 0.1], wrong=0),
        "FlashCodec on NVDEC": Figures(walls=[0.29, 0.3], cpus=[0.1, 0.1], wrong=0),
        "TorchCodec": Figures(walls=[1.2, 1.3], cpus=[0.2, 0.2], wrong=0),
        "PyNvVideoCodec": Figures(failure="not installed"),
    }
    row = RowResult("uniform64, a", "64 frames", "a.mp4", 64, Floors([0.25], [0.25], 3000, 12000), figures)
    document = {"machine": {"gpu": "a GPU"}, "versions": {}, "load": 0.0, "command": "run.py", "device": "cuda"}
    write(document | {"cores": 1, "rows": [dataclasses.asdict(row)]}, tmp_path)
    assert (tmp_path / "decode.png").stat().st_size > 10_000
    assert not (tmp_path / "decode-floor.png").exists()
    table = (tmp_path / "decode.md").read_text()
    assert "| uniform64, a | 0.30 (0.30–0.31) " in table
    assert "| TorchCodec | 4.10 (4.00–4.19) |" in table  # over FlashCodec's
