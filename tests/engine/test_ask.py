"""`unifiedserve ask` against a running daemon: the API's own answer, the stages, and errors in one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import Daemon
from media import make_image
from PIL import Image

pytestmark = pytest.mark.daemon("`ask` is a client of a real daemon")


def run(daemon_url: str, medium: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unifiedserve.cli", "ask", str(medium), "What is it?", "--url", daemon_url]
    return subprocess.run([*command, *options], capture_output=True, text=True, env={**os.environ, "COLUMNS": "500"})


def test_a_video(daemon: Daemon, sample_clip: Path) -> None:
    result = run(daemon.url, sample_clip, "--frames", "8", "--max-tokens", "12")
    assert result.returncode == 0, result.stderr
    assert daemon.answer(sample_clip, "What is it?", frames=8, max_tokens=12) in result.stdout
    for stage in ("vision", "encode", "prefill", "decode"):
        assert re.search(rf"^{stage} .*█", result.stdout, re.MULTILINE)
    assert re.search(r"first token after \d+ ms · between tokens p50 .* · frames decoded \d of 8", result.stdout)
    assert re.search(
        r"seen: 8 frames of \d+x\d+ as \d+x\d+, \d+ tokens, \d+ of \d+ packets decoded, at 0, .* s$",
        result.stdout,
        re.MULTILINE,
    )
    daemon.wait_idle()


def test_an_image(daemon: Daemon, tmp_path: Path) -> None:
    Image.fromarray(make_image(8, 60, 80)).save(tmp_path / "wave.png")
    result = run(f"{daemon.url}/v1", tmp_path / "wave.png", "--max-tokens", "4")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^encode .*█", result.stdout, re.MULTILINE)
    assert re.search(r"^seen: the image of 80x60 as \d+x\d+, \d+ tokens$", result.stdout, re.MULTILINE)


def test_errors_are_the_servers_words_in_one_line(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a video")
    refused = run(daemon.url, tmp_path / "notes.txt")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("unifiedserve: video 1: ")
    nobody = run("http://127.0.0.1:9", tmp_path / "notes.txt")
    assert (nobody.returncode, nobody.stderr.count("\n")) == (2, 1)
    assert "the server at http://127.0.0.1:9 cannot be reached" in nobody.stderr
    no_url = run("localhost:8000", tmp_path / "notes.txt")
    assert (no_url.returncode, no_url.stderr.count("\n")) == (2, 1)
    assert "--url: 'localhost:8000' must begin with http:// or https://" in no_url.stderr
