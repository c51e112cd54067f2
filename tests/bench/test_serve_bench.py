"""The serving benchmark: what it makes of tokens' arrivals, what it leaves behind, and a run from end to end."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import batched
import client
import contestants
import course
import httpx
import memory
import phases
import psutil
import pytest
import quantized
import servers
import timeline
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.models.tiny import make_checkpoint
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.read import QuantizedTensors

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "bench" / "serve_cpu" / "run.py"
WORKLOADS = ("decode", "text8", "images", "video", "phases", "stall4", "memory")  # phases1, stall1: as these
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


def span(stage: str, start: float, seconds: float, name: str = "step") -> dict[str, Any]:
    """Return an event of a trace, times in seconds."""
    return {"ph": "X", "name": name, "cat": stage, "ts": start * 1e6, "dur": seconds * 1e6}


def test_a_phase_lasts_until_its_stage_is_done() -> None:
    events = [
        {"ph": "M", "name": "process_name", "cat": "vision"},
        span("vision", 100.0, 0.5, "queue"),
        span("vision", 100.5, 1.5),
        span("encode", 101.0, 1.0),  # overlaps with vision
        span("encode", 104.0, 1.0),
        span("prefill", 102.0, 6.0),
        span("decode", 109.0, 9.0),
    ]
    found = phases.partition(events, ttft=8.5)
    assert found == {"vision": [0, 2], "encode": [2, 5], "prefill": [5, 8.5]}
    assert [phases.phase_at(found, moment) for moment in (0, 1.9, 2, 4.9, 8.4, 12)] == [
        *["vision"] * 2,
        *["encode"] * 2,
        *["prefill"] * 2,
    ]


def test_a_stage_that_is_done_before_the_one_ahead_of_it_has_no_phase_of_its_own() -> None:
    found = phases.partition([span("vision", 0, 4), span("encode", 1, 2), span("prefill", 4, 1)], ttft=5)
    assert found["encode"] == [4, 4]
    assert phases.phase_at(found, 4) == "prefill"


def test_without_a_trace_there_is_one_phase() -> None:
    found = phases.partition([], ttft=3)
    assert found == {"video": [0, 3]}
    assert phases.phase_at(found, 1) == "video"


def test_texts_are_compared_with_those_alone() -> None:
    figures = phases.compared(idle=[0.4, 0.5, 0.6], waits=[1.0, 1.5, 4.0])
    assert figures["median_ratio"] == pytest.approx(3)
    assert figures["worst_ratio"] == pytest.approx(8)


def test_only_gaps_while_the_video_is_worked_on_count() -> None:
    frozen = client.Answer(arrivals=[*steady(0, 3, 0.1), *steady(4, 8, 0.1)])
    video = client.Answer(start=2.0, arrivals=[6.0])
    figures = phases.smoothness([frozen, client.Answer(arrivals=steady(0, 8, 0.1))], video, settle=0)
    assert [figures["idle_gap"], figures["gap_p50"]] == pytest.approx([0.1, 0.1])
    assert figures["worst_gap"] == pytest.approx(1)
    late = client.Answer(start=4.5, arrivals=[6.0])
    assert phases.smoothness([frozen], late, settle=0)["worst_gap"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("text", "kind", "python", "options"),
    [
        ("shared", "shared", "", ()),
        ("shared:--order=fcfs --slo-ttft 2", "shared", "", ("--order=fcfs", "--slo-ttft", "2")),
        ("monolithic@/other/bin/python:--naive", "monolithic", "/other/bin/python", ("--naive",)),
        ("vllm:--max-num-batched-tokens=2048", "vllm", "", ("--max-num-batched-tokens=2048",)),
    ],
)
def test_a_contestant_is_read_from_text(text: str, kind: str, python: str, options: tuple[str, ...]) -> None:
    assert contestants.read(text) == contestants.Contestant(text, kind, python, options)


@pytest.mark.parametrize(
    "text",
    ["sglang", "vllm@/python", "generate:--fast", "generate+int8", "vllm+int2", "shared@", "", "shared:'--order"],
)
def test_what_is_no_contestant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no server|no such|only|No closing"):
        contestants.read(text)


@pytest.mark.parametrize("kind", contestants.QUANTIZED)
def test_a_quantised_checkpoint_is_what_it_was_made_of(kind: str, tmp_path: Path) -> None:
    plain = make_checkpoint(tmp_path / "plain", 0, {"hidden_size": 384, "intermediate_size": 384})
    assert contestants.read(f"vllm+{kind}").weights == kind
    quantized.make(plain, kind, tmp_path / kind)
    config = json.loads((tmp_path / kind / "config.json").read_text())["quantization_config"]
    found = dict(QuantizedTensors(SafetensorsFiles(tmp_path / kind), config).read())
    matrices = {name: each for name, each in found.items() if isinstance(each, QuantizedMatrix)}
    assert any("down_proj" in name for name in matrices)
    before = load_file(plain / "model.safetensors")
    assert found.keys() == before.keys()
    for name, matrix in matrices.items():
        off = (matrix.dequantize() - before[name].float()).norm() / before[name].float().norm()
        assert off < {"int8": 0.02, "int4": 0.2}[kind]


@pytest.mark.parametrize(("text", "weights"), [("llamacpp", ""), ("llamacpp+q8_0", "q8_0"), ("shared+q4_0", "q4_0")])
def test_gguf_files_are_read_by_llama_cpp_and_by_ours(text: str, weights: str) -> None:
    assert contestants.read(text).weights == weights


@pytest.mark.parametrize("text", ["vllm+q8_0", "llamacpp+int8", "generate+int8"])
def test_weights_that_a_server_does_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"no such weights; there are, by server, .*llamacpp: bf16, q8_0, q4_0"):
        contestants.read(text)


def test_a_llama_cpp_that_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(servers.StartError, match=r"not built in .*: python bench/serve_cpu/install_llamacpp\.py"):
        servers.llamacpp(contestants.read("llamacpp"), tmp_path / "model.gguf", tmp_path / "mmproj.gguf", tmp_path)


async def test_tokens_without_ids_are_counted_by_what_the_server_says_of_itself() -> None:
    """Some chunks bring several, because a token alone may be no text."""

    def reply(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["timings_per_token"]
        chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant"}}]}]
        chunks += [{"choices": [{"delta": {"content": "a"}}], "timings": {"predicted_n": n}} for n in (1, 3, 4)]
        chunks += [{"choices": [], "usage": {"prompt_tokens": 7}, "timings": {"predicted_n": 4}}]
        lines = [json.dumps({"id": "x", **chunk}) for chunk in chunks]
        return httpx.Response(200, content=events([*lines, "[DONE]"]))

    async def events(lines: list[str]) -> AsyncIterator[bytes]:
        yield b": still there\n\n"
        for line in lines:
            yield f"data: {line}\n\n".encode()

    async with httpx.AsyncClient(transport=httpx.MockTransport(reply), base_url="http://server") as http:
        answer = await client.Client(http, "m", {"timings_per_token": True}).ask("?", 4)
    assert (len(answer.arrivals), answer.prompt_tokens, answer.text) == (4, 7, "aaa")


def test_figures_of_the_program_without_a_server(tmp_path: Path) -> None:
    program = tmp_path / "program"
    lines = [json.dumps({"pl": n, "tg": 96, "t_tg": 4.8, "speed_tg": 20.0 * n}) for n in (1, 32)]
    program.write_text("#!/bin/sh\ncat <<END\nloading\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    found = batched.streams(program, tmp_path / "model.gguf", course.Sizes())
    assert found == pytest.approx({"tokens1": 20, "tbt1": 0.05, "tokens32": 640, "tbt32": 0.05})


def test_ours_is_served_by_the_checkout_that_was_named(tmp_path: Path) -> None:
    chosen = contestants.read("shared@/other/bin/python:--order=fcfs")
    command = servers.ours(chosen, tmp_path, tmp_path, ["--torch-threads", "1"]).command
    assert command[:4] == ["/other/bin/python", "-P", "-m", "unifiedserve.cli"]
    assert command[-3:] == ["--torch-threads", "1", "--order=fcfs"]


def child_of(log: Path) -> int:
    found = re.search(r"child (\d+)", log.read_text())
    assert found
    return int(found[1])


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("reason", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_nothing_of_a_server_stays_behind(
    tmp_path: Path, reason: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "LAST_SECONDS", 0.5)
    log = tmp_path / "log"
    found: list[int] = []
    server = servers.Server([sys.executable, "-c", SERVER])

    def run() -> None:
        with servers.running(server, log) as (_, pid):
            found.extend([pid, child_of(log)])
            assert all(map(lives, found))
            assert memory.proportional_set_size(pid) > memory.proportional_set_size(found[1]) > 0
            raise reason

    with pytest.raises(reason):
        run()
    while any(map(lives, found)):  # a busy machine ends late what was killed
        os.sched_yield()


def test_a_server_that_ends_at_once_says_so(tmp_path: Path) -> None:
    server = servers.Server([sys.executable, "-c", "raise SystemExit(7)"])
    with pytest.raises(servers.StartError, match="ended with code 7"), servers.running(server, tmp_path / "log"):
        pass


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="the ffmpeg command is not installed")
def test_the_quick_run_measures_and_writes_its_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folders = ["--folder", str(tmp_path), "--out", str(tmp_path), "--logs", str(tmp_path / "logs")]
    chosen = ["--servers", "shared:--no-overlap,vllm", "--vllm", str(tmp_path / "nothing")]
    chosen += ["--workloads", ",".join(WORKLOADS)]
    command = [sys.executable, str(SCRIPT), "--quick", "--model", str(tmp_path / "model"), *chosen, *folders]
    # The workers' threads would wait for each other on a busy machine.
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    document = json.loads((tmp_path / "serve-cpu.json").read_text())
    (measured,) = document["rounds"]
    assert document["checkpoint"]["language_model_bytes"] > 0
    assert measured["bandwidth"] > 1e8
    assert "not installed" in measured["servers"]["vllm"]["failure"]
    floor = document["checkpoint"]["language_model_bytes"] / measured["bandwidth"]
    check(measured["servers"]["shared:--no-overlap"], floor)
    table = (tmp_path / "serve-cpu.md").read_text()
    assert "8 texts at once" in table
    assert "Prompt tokens, the same for all" in table
    assert "differ" not in table
    for picture in ("serve-cpu.png", "serve-cpu-bars.png", "serve-cpu-phases.png"):
        assert (tmp_path / picture).stat().st_size > 0


def check(found: dict[str, Any], floor: float) -> None:
    assert "failure" not in found
    for workload in WORKLOADS:
        assert "failure" not in found[workload], found[workload]
    assert found["decode"]["over_floor"] == pytest.approx(found["decode"]["tbt"] / floor)
    assert found["decode"]["prompt_tokens"] == found["text8"]["prompt_tokens"] == 128
    assert found["text8"]["tokens"] == pytest.approx(8 * found["text8"]["requests"])
    assert found["images"]["tokens"] == pytest.approx(4 * found["images"]["requests"])
    assert 0 < found["memory"]["idle"] <= found["memory"]["peak"]
    check_phases(found["phases"])
    figures = found["stall4"]
    window = timeline.Window(figures["steady"], 0.0, figures["window"])
    again = timeline.figures(figures["streams"], window)
    assert again == pytest.approx({name: figures[name] for name in again})
    assert len(figures["streams"]) == len(figures["first_tokens"]) == 4
    waited = statistics.mean(figures["first_tokens"]) - statistics.mean(figures["sent"])
    assert waited == pytest.approx(figures["ttft"], abs=2e-5)  # times are kept in steps of 10 microseconds
    assert max(figures["first_tokens"]) == pytest.approx(figures["window"])
    assert all(stream == sorted(stream) for stream in figures["streams"])


def check_phases(figures: dict[str, Any]) -> None:
    assert list(figures["phases"]) == ["vision", "encode", "prefill"]
    assert figures["phases"]["prefill"][1] == pytest.approx(figures["ttft"], abs=0.05)
    waits = [wait for _, wait, _ in figures["texts"]]
    assert figures["median"] == pytest.approx(statistics.median(waits))
    assert figures["worst_ratio"] == pytest.approx(max(waits) / figures["idle"])
    assert [due for due, _, _ in figures["texts"]] == pytest.approx(
        [0.05 + 0.1 * number for number in range(len(waits))]
    )
    assert figures["prompt_tokens"] > 100
