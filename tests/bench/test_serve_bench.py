"""The serving benchmark: what it makes of tokens' arrivals, what it leaves behind, and a run from end to end."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import memory
import psutil
import pytest
import servers
import timeline
from hypothesis import given
from hypothesis import strategies as st

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "bench" / "serve_cpu" / "run.py"
WINDOW = timeline.Window(steady=1.0, start=2.0, stop=4.0)

# A server with a child in a session of its own, which does not end with its parent.
SERVER = """\
import http.server, subprocess, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print("child", child.pid, flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


def steady(start: float, stop: float, gap: float) -> list[float]:
    return [start + gap * number for number in range(round((stop - start) / gap) + 1)]


def test_a_stream_that_goes_on_is_not_frozen() -> None:
    figures = timeline.figures([steady(0, 5, 0.1)] * 4, WINDOW)
    assert figures["idle_gap"] == pytest.approx(0.1)
    assert figures["worst_gap"] == pytest.approx(0.1)
    assert figures["frozen"] == 0
    assert figures["kept"] == pytest.approx(1, abs=0.1)
    assert figures["before"] == pytest.approx(40, abs=4)


def test_a_gap_beyond_the_window_counts_whole_but_freezes_only_the_window() -> None:
    stopped = [*steady(0, 3, 0.1), *steady(5, 6, 0.1)]
    figures = timeline.figures([stopped, steady(0, 6, 0.1)], WINDOW)
    assert figures["worst_gap"] == pytest.approx(2)
    assert figures["frozen"] == pytest.approx((0.5 + 0) / 2)


def test_tokens_of_one_moment_share_their_time() -> None:
    arrivals = [0.0, 0.1, 0.1002, 0.3, 0.3001, 0.3002]
    assert timeline.times_per_token(arrivals) == pytest.approx([0.05] * 2 + [0.2 / 3] * 3)


@given(st.lists(st.floats(0.01, 1.0), min_size=20, max_size=200))
def test_gaps_cover_the_window(between: list[float]) -> None:
    arrivals = [sum(between[:number]) for number in range(len(between) + 1)]
    window = timeline.Window(0.0, arrivals[3], arrivals[-3])
    seen = list(timeline.gaps(arrivals, window))
    assert sum(inside for _, inside in seen) == pytest.approx(window.length)
    assert max(gap for gap, _ in seen) == pytest.approx(max(between[3:-2]))


def child_of(log: Path) -> int:
    found = re.search(r"child (\d+)", log.read_text())
    assert found
    return int(found[1])


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("reason", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_nothing_of_a_server_stays_behind(tmp_path: Path, reason: type[BaseException]) -> None:
    log = tmp_path / "log"
    found: list[int] = []
    server = servers.Server("stub", [sys.executable, "-c", SERVER])

    def run() -> None:
        with servers.running(server, log) as (_, pid):
            found.extend([pid, child_of(log)])
            assert all(map(lives, found))
            assert memory.proportional_set_size(pid) > memory.proportional_set_size(found[1]) > 0
            raise reason

    with pytest.raises(reason):
        run()
    assert not any(map(lives, found))


def test_a_server_that_ends_at_once_says_so(tmp_path: Path) -> None:
    server = servers.Server("stub", [sys.executable, "-c", "raise SystemExit(7)"])
    with pytest.raises(servers.StartError, match="ended with code 7"), servers.running(server, tmp_path / "log"):
        pass


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="the ffmpeg command is not installed")
def test_the_quick_run_measures_and_writes_its_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folders = ["--folder", str(tmp_path), "--out", str(tmp_path), "--logs", str(tmp_path / "logs")]
    chosen = ["--servers", "shared,monolithic,vllm", "--vllm", str(tmp_path / "nothing")]
    command = [sys.executable, str(SCRIPT), "--quick", "--model", str(tmp_path / "model"), *chosen, *folders]
    # The workers' threads would wait for each other on a busy machine.
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    document = json.loads((tmp_path / "serve-cpu.json").read_text())
    (measured,) = document["rounds"]
    assert document["checkpoint"]["language_model_bytes"] > 0
    assert measured["bandwidth"] > 1e8
    assert "not installed" in measured["servers"]["vllm"]["failure"]
    for name in ("shared", "monolithic"):
        check(measured["servers"][name], document["checkpoint"]["language_model_bytes"] / measured["bandwidth"])
    table = (tmp_path / "serve-cpu.md").read_text()
    assert "8 texts at once" in table
    assert "Prompt tokens, the same for all" in table
    assert "differ" not in table
    for picture in ("serve-cpu.png", "serve-cpu-bars.png"):
        assert (tmp_path / picture).stat().st_size > 0


def check(found: dict[str, Any], floor: float) -> None:
    assert "failure" not in found
    for workload in ("decode", "text8", "images", "video", "stall1", "stall4", "memory"):
        assert "failure" not in found[workload], found[workload]
    assert found["decode"]["over_floor"] == pytest.approx(found["decode"]["tbt"] / floor)
    assert found["decode"]["prompt_tokens"] == found["text8"]["prompt_tokens"] == 128
    assert found["text8"]["tokens"] == pytest.approx(8 * found["text8"]["requests"])
    assert found["images"]["tokens"] == pytest.approx(4 * found["images"]["requests"])
    assert 0 < found["memory"]["idle"] <= found["memory"]["peak"]
    for workload, videos in (("stall1", 1), ("stall4", 4)):
        figures = found[workload]
        window = timeline.Window(figures["steady"], 0.0, figures["window"])
        again = timeline.figures(figures["streams"], window)
        assert again == pytest.approx({name: figures[name] for name in again})
        assert len(figures["streams"]) == 4
        assert len(figures["first_tokens"]) == videos
        waited = statistics.mean(figures["first_tokens"]) - statistics.mean(figures["sent"])
        assert waited == pytest.approx(figures["ttft"], abs=2e-5)  # times are kept in steps of 10 microseconds
        assert max(figures["first_tokens"]) == pytest.approx(figures["window"])
        assert all(stream == sorted(stream) for stream in figures["streams"])
