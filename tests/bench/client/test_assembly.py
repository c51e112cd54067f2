"""The parts of a benchmark, put together as the command does it."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

import unifiedserve
from unifiedserve.bench.assembly import check, parts
from unifiedserve.bench.client.body import media_paths
from unifiedserve.bench.options import GoodputOptions, RunOptions
from unifiedserve.bench.requests import Medium
from unifiedserve.bench.slo import Slo
from unifiedserve.errors import ConfigError


def test_requests_of_a_search_are_drawn_before_a_rate_is_known() -> None:
    options = GoodputOptions(workload="text")
    check(options)
    drawn = parts(Slo(), Console()).requests(options, 3, 4)
    assert [request.kind for request in drawn] == ["text"] * 4
    assert list(drawn) == list(parts(Slo(), Console()).requests(RunOptions(workload="text"), 3, 4))


def test_a_traces_own_workload_is_possible_if_the_trace_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_time,input_tokens,output_tokens\n0,20,4\n1,30,4\n")
    options = RunOptions(workload="trace", arrivals=f"trace:{path}")
    check(options)
    assert len(parts(Slo(), Console()).requests(options, 3, 4)) == 2
    path.write_text("arrival_time,input_tokens,output_tokens\n0,none,4\n")
    with pytest.raises(ConfigError, match="line 2"):
        check(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RunOptions(arrivals="poisson:none"), "poisson:none"),
        (RunOptions(workload="no-such"), "no-such"),
        (RunOptions(dataset="mlvu"), "--data-dir"),
        (RunOptions(dataset="no-such", data_dir="."), "no-such"),
        (GoodputOptions(arrivals="closed:RATE"), "RATE is no rate there"),
        (GoodputOptions(arrivals="gamma:2,cv=RATE"), "RATE is no rate there"),
        (GoodputOptions(arrivals="trace:/no/such.csv?scale=RATE"), "RATE is no rate there"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_is_asked(options: RunOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(options)


def put_questions(folder: Path, clip: Path) -> RunOptions:
    """Write a question of ActivityNet-QA about a clip; its annotations tell no lengths."""
    (folder / "all_test").mkdir()
    (folder / "all_test" / "v_a.mp4").write_bytes(clip.read_bytes())
    question, answer = {"question_id": "a_0", "question": "who"}, {"question_id": "a_0", "answer": "he", "type": 0}
    (folder / "test_q.json").write_text(json.dumps([question | {"video_name": "a"}]))
    (folder / "test_a.json").write_text(json.dumps([answer]))
    return RunOptions(dataset="activitynet-qa", data_dir=str(folder))


def test_the_length_of_a_video_counts_though_its_annotations_do_not_tell_it(tmp_path: Path) -> None:
    options = put_questions(tmp_path, Path(unifiedserve.__file__).parent / "samples" / "telescope.mp4")
    check(options)
    (asked,) = parts(Slo(), Console()).requests(options, 0, 5)
    (video,) = [part for part in asked.turns[0].parts if isinstance(part, Medium)]
    assert video.seconds == pytest.approx(10, abs=5)


def row_of_mvbench(start: float | None) -> dict[str, Any]:
    return {"video": "v.mp4", "question": "Who?", "candidates": ["a", "b"], "answer": "a", "start": start, "end": None}


def test_questions_on_parts_of_files_are_left_out_and_listed(tmp_path: Path) -> None:
    videos = tmp_path / "video" / "perception" / "videos"
    videos.mkdir(parents=True)
    clip = Path(unifiedserve.__file__).parent / "samples" / "telescope.mp4"
    (videos / "v.mp4").write_bytes(clip.read_bytes())
    (tmp_path / "json").mkdir()
    rows = tmp_path / "json" / "state_change.json"
    rows.write_text(json.dumps([row_of_mvbench(start) for start in (None, 1.0)]))
    options = RunOptions(dataset="mvbench", data_dir=str(tmp_path))
    check(options)
    console = Console(file=io.StringIO(), width=300)
    (asked,) = parts(Slo(), console).requests(options, 0, 5)
    assert media_paths([asked]) == [str(videos / "v.mp4")]
    assert "state_change.json, row 2: it is about a part of a file" in console.file.getvalue()  # type: ignore[attr-defined]
    rows.write_text(json.dumps([row_of_mvbench(1.0)]))
    with pytest.raises(ConfigError, match="it is about a part of a file; nothing is left to ask"):
        check(msgspec.structs.replace(options, skip_missing=True))  # it is read again
