"""The scripts in examples/ run as they stand, against a real daemon."""

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon import Daemon

from unifiedserve.models.default import DEFAULT_MODEL

EXAMPLES = Path(__file__).parents[2] / "examples"
of_a_server = pytest.mark.daemon(
    "what a newcomer tries",
    model="bundled",
    served_model_name=DEFAULT_MODEL,
    allowed_local_media_path="local media",
)
Said = Callable[..., str]  # the `said` fixture


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """Runs a script with these arguments, and returns what it and its commands print."""

    def run(name: str, *arguments: object) -> str:
        path = EXAMPLES / name
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        runpy.run_path(str(path), run_name="__main__")
        return capfd.readouterr().out

    return run


@of_a_server
def test_a_video_is_asked_about(daemon: Daemon, said: Said) -> None:
    answers = said("ask_about_a_video.py", daemon.url)
    assert "pink triangle" in answers
    assert re.search(r"[1-9]\d* frames, [1-9]\d* visual tokens", answers)


@of_a_server
def test_an_answer_is_streamed(daemon: Daemon, said: Said) -> None:
    answer, counted = said("stream_an_answer.py", daemon.url).splitlines()
    tokens, first, last = map(float, re.findall(r"[\d.]+", counted))
    assert tokens > 1
    assert 0 < first <= last
    assert "star" in answer


@of_a_server
def test_answers_have_the_form_that_is_asked_for(daemon: Daemon, said: Said) -> None:
    chosen, parsed = said("structured_output.py", daemon.url).splitlines()
    assert chosen == "one of six sentences: The triangle is red."
    assert re.fullmatch(r"by a JSON schema: \{'colour': '(blue|green|purple|red|white|yellow)'\}", parsed)


@pytest.mark.daemon("a template that knows tools", model="bundled", served_model_name="shapes", chat_template="agents")
def test_a_tool_is_called(daemon: Daemon, said: Said) -> None:
    call = said("call_tools.py", daemon.url).splitlines()[0]
    found = re.fullmatch(r"weather\((.*)\) = sun in (Oslo|Rome) for ([1-7]) days", call)
    assert found
    assert json.loads(found[1]) == {"city": found[2], "days": int(found[3])}


def test_a_loader_gives_batches(said: Said) -> None:
    batches = said("train_on_clips.py", 0).splitlines()
    assert [batch.split(" torch.uint8 ")[0] for batch in batches] == ["(2, 8, 3, 112, 112)"] * 2


def test_clips_are_cut(said: Said) -> None:
    first, *clips, random = said("sample_clips.py").splitlines()
    assert first == "300 frames, 29.97 a second"
    assert clips[0] == "clip (4, 180, 320, 3) at 0.00, 0.23, 0.47, 0.73 s"
    assert random == "random clips (8, 16, 180, 320, 3)"


@of_a_server
def test_a_server_is_measured(daemon: Daemon, said: Said, tmp_path: Path) -> None:
    assert "report.html" in said("measure_a_server.py", daemon.url, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 0


@of_a_server
def test_a_trace_tells_of_every_stage(daemon: Daemon, said: Said) -> None:
    works = re.findall(r"^(\w+) +works", said("read_a_trace.py", daemon.url), re.MULTILINE)
    assert {"vision", "encode", "prefill", "decode"} <= set(works)
