"""What the GPU bench measures of a daemon, on the processor with a tiny model: it runs, and its figures make sense."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.gpu import machine, served, stall_plot
from bench.gpu.figures import Figures
from bench.gpu.items import interference, serving
from bench.gpu.shapes import make_folder
from unifiedserve.cli.daemon import Daemon

SIZES = serving.Sizes(streams=2, stream_tokens=1500, settle=10, videos=2, waves=1, frames=8, tokens=4)


@pytest.fixture(autouse=True)
def items_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.CARRIED_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.chdir(tmp_path)


def test_streams_beside_videos_are_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"shared": ("--placement", "shared")}
    monkeypatch.setattr(serving, "SHARING", ways)
    monkeypatch.setattr(serving, "DECODING", ("fastest",))
    folder = make_folder(tmp_path / "model", "tiny")
    serving.measure(Figures(tmp_path / "figures"), "cpu", folder, "float32", SIZES)
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    assert [(row["sharing"], row["videos by"]) for row in figures["rows"]] == [(name, "fastest") for name in ways]
    for row in figures["rows"]:
        assert "error" not in row, row
        assert 0 < row["tbt_p50_ms"] <= row["tbt_p99_ms"] <= row["tbt_worst_ms"]
        assert 0 < row["video_ttft_s"] <= row["video_s"]
        assert row["tokens_s"] > row["requests_s"] > 0
        assert row["handoff_us"] >= 0
    assert [len(streams) for streams in figures["streams"].values()] == [2]
    record = {"item": "serve_beside", "figures": figures}
    (tmp_path / "results.json").write_text(json.dumps({"machine": {}, "items": [record]}))
    stall_plot.draw_saved(tmp_path / "results.json")
    assert (tmp_path / "stalls.png").stat().st_size > 5000


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_daemons_have_the_sandbox_that_items_are_told(sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    @contextmanager
    def daemon(model: str, *options: str) -> Iterator[Daemon]:
        given.extend(options)
        with subprocess.Popen(["true"], text=True) as process:
            yield Daemon("http://localhost", process)

    monkeypatch.setenv(machine.SANDBOX_VARIABLE, sandbox)
    monkeypatch.setattr(served, "daemon", daemon)
    with served.served("", "cuda"):
        pass
    assert given[given.index("--sandbox") + 1] == sandbox


def test_each_victim_is_measured_beside_each_other_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "VICTIMS", (("decode", 2), ("prefill", 16)))
    monkeypatch.setattr(interference, "BESIDE", (("prefill", 32), ("encode", 64)))
    interference.measure(Figures(tmp_path / "figures"), "cpu", "tiny", {}, 0.05)
    rows = json.loads((tmp_path / "figures").read_text())["figures"]["rows"]
    assert [(row["victim"], row["beside"]) for row in rows] == [
        ("decode 2", "prefill 32"),
        ("decode 2", "encode 64"),
        ("prefill 16", "prefill 32"),
        ("prefill 16", "encode 64"),
    ]
    for row in rows:
        assert row["slowdown"] == pytest.approx(row["beside_ms"] / row["alone_ms"])
