"""The command line: options, one-line errors, and a daemon that comes and goes cleanly."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import httpx
import msgspec
import pytest
from command_line import the_line, wait_until_closed
from safetensors.torch import load_file, save_file

from unifiedserve import __version__
from unifiedserve.bench.options import GoodputOptions, RunOptions
from unifiedserve.cli.daemon import daemon
from unifiedserve.cli.options import options_of
from unifiedserve.config import EngineConfig
from unifiedserve.doctor import gpu
from unifiedserve.models.tiny import make_checkpoint
from unifiedserve.planning.options import PlanOptions

COMMAND = [sys.executable, "-m", "unifiedserve.cli"]


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **(env or {})})


def test_version() -> None:
    assert run("version").stdout == f"{__version__}\n"


def test_the_cache_is_shown_and_its_weights_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "unifiedserve"
    for name in ("weights/a.safetensors", "profiles/b.toml"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(bytes(3 << 20))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert re.search(r"3\.0 MiB  weights$", run("cache", env=environment).stdout, re.MULTILINE)
    assert "weights\n" not in run("cache", "--clear", env=environment).stdout
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["b.toml"]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 0
    for command in ("serve", "ask", "demo", "doctor", "version"):
        assert re.search(rf"^  {command} ", result.stdout, re.MULTILINE)


def test_serve_has_every_option_of_the_config() -> None:
    text = run("serve", "--help").stdout
    for field, _ in options_of(EngineConfig):
        wanted = "model" if field.name == "model" else "--" + field.name.replace("_", "-")
        assert re.search(rf"^  {wanted}( |$)", text, re.MULTILINE), wanted
    assert "unifiedserve serve --trace trace.json" in text
    headings = ["Arguments", "Checkpoint", "Machine", "Memory", "Scheduling", "Media", "Server", "Options"]
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == headings


@pytest.mark.parametrize("options", [EngineConfig, RunOptions, GoodputOptions, PlanOptions])
def test_a_help_text_makes_sense_without_its_option(options: type[msgspec.Struct]) -> None:
    for field, hint in options_of(options):
        name = field.name
        text = next(part.description for part in get_args(hint) if isinstance(part, msgspec.Meta))
        assert not re.match(r"(Of|Its|More|Less|As|That|Who|Such|Longest|Largest) ", text), name
        assert text[0].isupper(), name


def test_help_needs_no_heavy_imports() -> None:
    code = (
        "import sys, unifiedserve.cli.app; print({'torch', 'transformers', 'starlette', 'uvicorn'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_server_starts_without_other_commands() -> None:
    code = (
        "import sys, unifiedserve.cli.serve; "
        "print([name for name in sys.modules if name.startswith('unifiedserve.') and 'bench' in name])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


WITHOUT_GPU = pytest.mark.skipif(gpu.has_device(), reason="there is a GPU")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["nonsense"]),
        (["serve", "--nonsense"], ["--nonsense"]),
        (["serve", "--port", "many"], ["--port"]),
        (["serve", "--port", "70000"], ["--port", "65535"]),
        (["serve", "--port", "0", "--placement", "sideways"], ["--placement", "sideways"]),
        (["serve", "--load-format", "zeros"], ["--load-format", "zeros", "dummy"]),
        (["serve", "--kv-cache-dtype", "fp4"], ["--kv-cache-dtype", "fp4", "int8"]),
        (["serve", "--gpu-memory-utilization", "1.5"], ["--gpu-memory-utilization"]),
        pytest.param(["serve", "--port", "0", "--device", "cuda"], ["--device cuda:"], marks=WITHOUT_GPU),
        (["serve", "--media-timeout", "0"], ["--media-timeout"]),
        (["serve", "--port", "0", "/no/such/model"], ["/no/such/model"]),
        (["serve", "--port", "0", "--chat-template", "/no/such.jinja"], ["--chat-template", "/no/such.jinja"]),
        (["serve", "--host", "256.0.0.1"], ["256.0.0.1"]),
        (["serve", "--slo-tbt", "-1"], ["--slo-tbt"]),
        (["serve", "--order", "lifo"], ["--order", "lifo", "slack"]),
        (["serve", "--port", "0", "--naive"], ["--naive", "--placement monolithic"]),
        (["serve", "--port", "0", "--budgets", "profiled", "--encode-budget-tokens", "64"], ["--budgets", "leave one"]),
        (["serve", "--port", "0", "--roles", "auto"], ["--roles auto", "--placement shared has one worker a stage"]),
        (["serve", "--port", "0", "--irp", "off"], ["--irp off", "--placement shared has one encoder"]),
        (["serve", "--port", "0", "--carrier", "tcp"], ["--carrier tcp", "--placement shared has one memory"]),
        (
            ["serve", "--port", "0", "--dual-streams", "on", "--placement", "e-p-d"],
            ["--dual-streams on", "--placement e-p-d", "leave one out"],
        ),
        (
            ["serve", "--port", "0", "--dual-streams", "on", "--placement", "monolithic", "--naive"],
            ["--naive", "--dual-streams on", "leave one out"],
        ),
        (["serve", "--port", "0", "--scheduling", "alg1"], ["--scheduling", "stage-level"]),
        (
            ["serve", "--port", "0", "--scheduling", "stage-level", "--order", "shortest"],
            ["--scheduling stage-level", "leave one out"],
        ),
        (
            ["serve", "--port", "0", "--scheduling", "prefill-encode", "--placement", "monolithic"],
            ["--scheduling prefill-encode needs decode in a process of its own", "--placement shared"],
        ),
        (
            ["serve", "--port", "0", "--scheduling", "stage-level", "--naive", "--placement", "monolithic"],
            ["--naive", "--scheduling stage-level", "leave one out"],
        ),
        (["serve", "--port", "0", "--compare", "--placement", "monolithic"], ["--compare", "leave one out"]),
        (["serve", "--port", "0", "--no-pacing", "--slo-tbt", "50"], ["--no-pacing", "--slo-tbt", "leave one out"]),
        (["serve", "--port", "0", "--slo-tbt", "inf"], ["--slo-tbt inf", "finite number"]),
        (
            ["serve", "--port", "0", "--device", "cpu", "--gpu-threads", "decode=50"],
            ["--gpu-threads", "means nothing on a CPU"],
        ),
        (["bench", "--arrivals", "poisson:-1"], ["poisson:-1", "above zero"]),
        (["bench", "--url", "http://127.0.0.1:1"], ["http://127.0.0.1:1"]),
        (["bench", "--dataset", "mlvu"], ["--data-dir"]),
        (["bench", "--workload", "no-such"], ["no-such", "mixed"]),
        (["bench", "goodput", "--arrivals", "poisson:2", "--slo-ttft", "1"], ["--arrivals", "RATE"]),
        (["bench", "goodput"], ["goodput needs targets", "--slo-ttft"]),
        (["bench", "--slo-ttft-per-video-second", "1"], ["--slo-ttft-per-video-second adds to --slo-ttft"]),
        (["bench", "--slo-factor", "5", "--slo-tbt", "1"], ["--slo-factor", "leave out --slo-ttft and --slo-tbt"]),
        (["bench", "compare", "/no/such.json"], ["/no/such.json"]),
        (["serve", "--port", "0", "--slo-tbt", "0.001"], ["--slo-tbt 0.001", "is the least"]),
        (["serve", "--port", "0", "--torch-threads", "9999"], ["--torch-threads 9999", "cores"]),
        (["serve", "--port", "0", "--device", "cpu", "--tensor-parallel-size", "64"], ["--tensor-parallel-size 64"]),
        (["serve", "--port", "0", "--vision-threads", "9999"], ["--vision-threads 9999", "cores"]),
        (["serve", "--port", "0", "--kv-cache-mib", "99999999"], ["KV cache 99,999,", "weights", " MiB free"]),
        (["cluster", "up", "/no/such.toml"], ["/no/such.toml", "cannot read the file"]),
        (["cluster", "scale", "a", "many"], ["count", "valid integer"]),
        (["router", "--nodes", "http://localhost:1", "--port", "99999"], ["--port", "65535"]),
        (["router", "--nodes", "http://localhost:1", "--drain-timeout", "inf"], ["--drain-timeout inf", "finite"]),
        (["router", "--nodes", "http://localhost:1", "--drain-timeout", "-1"], ["--drain-timeout"]),
        (
            ["router", "--nodes", "http://localhost:1,http://localhost:x"],
            ["--nodes http://localhost:x", "expected URLs"],
        ),
        (["router", "--nodes", "http://[::1"], ["--nodes http://[::1", "expected URLs"]),
        (["demo", "--video", "/no/such.mp4"], ["/no/such.mp4"]),
        (["ask", "/no/such.mp4", "What?"], ["/no/such.mp4"]),
        (["ask", "clip.mp4", "What?", "--url", "http://localhost:1", "--model", "tiny"], ["--url", "--model"]),
    ],
)
def test_mistakes_are_one_line(error_of: Callable[..., str], arguments: list[str], words: list[str]) -> None:
    line = error_of(*arguments)
    assert all(word in line for word in words)


def test_mistakes_end_the_process() -> None:
    """Those that the engine finds when it starts do, too: `test_a_daemon_tells_its_start_in_json`."""
    result = run("serve", "--port", "0", "--nonsense")
    assert "--nonsense" in the_line(result.returncode, result.stdout, result.stderr)


def answer_of(client: httpx.Client) -> str:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "ignore_eos": True, "temperature": 0}
    answer: str = (
        client.post("/v1/chat/completions", json=body, timeout=60)
        .raise_for_status()
        .json()["choices"][0]["message"]["content"]
    )
    return answer


def test_a_start_from_kept_weights_does_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the server's own process: it computes nothing, and torch would be a second of its start."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with daemon("", "--device", "cpu") as first, httpx.Client(base_url=first.url) as client:
        expected = answer_of(client)
        while not list(tmp_path.rglob("*.safetensors")):
            client.get("/health")
    with daemon("", "--device", "cpu") as second, httpx.Client(base_url=second.url) as client:
        assert answer_of(client) == expected
        assert "libtorch" not in Path(f"/proc/{second.process.pid}/maps").read_text()


def test_port_in_use(error_of: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = error_of("serve", "--port", port)
    assert port in line
    assert "--port" in line


def test_model_directory_without_weights(error_of: Callable[..., str], tmp_path: Path) -> None:
    assert str(tmp_path) in error_of("serve", "--port", "0", str(tmp_path))


def test_a_checkpoint_that_does_not_fit_its_config(error_of: Callable[..., str], tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    del stored["lm_head.weight"]
    save_file(stored, tmp_path / "model.safetensors")
    assert "lacks 1 tensors of its model: lm_head.weight" in error_of("serve", "--port", "0", str(tmp_path))


def test_a_shard_that_is_not_there(error_of: Callable[..., str], tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "does not hold: model-00002-of-00002.safetensors" in error_of("serve", "--port", "0", str(tmp_path))


def test_ctrl_c_stops_the_daemon_cleanly(tmp_path: Path) -> None:
    """SIGTERM, which takes the same way, is how the demonstration below stops its daemon."""
    trace, turns = tmp_path / "trace.json", tmp_path / "turns"
    with daemon("", "--trace", str(trace), "--record", str(turns), "--kv-cache-mib", "16") as (url, process):
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status().json()
        assert answer["usage"]["completion_tokens"] == 3
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert not list(Path("/dev/shm").glob(f"*{process.pid}-*"))
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"prefill", "decode"} <= {event.get("cat") for event in events}
    lines = run("replay", str(turns)).stdout.splitlines()
    assert [re.sub(r"[1-9]\d*", "N", line) for line in lines] == [
        "decode-N: N turns are alike",
        "encode-prefill-N: N turns are alike",
        "vision-N: 0 turns are alike",
    ]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_second_ctrl_c_ends_running_requests_with_a_clear_error() -> None:
    with daemon("", "--kv-cache-mib", "128") as (url, process):
        body = {
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 30000,
            "ignore_eos": True,
            "stream": True,
        }
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            wait_until_closed(url)  # two at once may arrive as one
            process.send_signal(signal.SIGINT)
            *_, last = [line for line in lines if line]
        assert "the server is shutting down" in last
        assert process.wait() == 0
    assert not list(Path("/dev/shm").glob(f"*{process.pid}-*"))


def test_demo_answers_and_shows_every_stage(sample_clip: Path) -> None:
    result = run("demo", "--max-tokens", "4", "--video", str(sample_clip), env={"COLUMNS": "120"})
    assert result.returncode == 0, result.stderr
    assert sample_clip.name in result.stdout
    for stage in ("vision", "encode", "prefill", "decode"):
        assert re.search(rf"^{stage}.*█", result.stdout, re.MULTILINE)
