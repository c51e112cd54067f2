"""The demonstration: a daemon of its own, one question about a clip over HTTP, the answer and its timeline."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from unifiedserve.errors import ConfigError
from unifiedserve.gantt import gantt

_SAMPLE = Path(__file__).parent / "samples" / "telescope.mp4"
_READY = re.compile(r"^Serving .* at (http://\S+)$")
_TIMEOUT = httpx.Timeout(10.0, read=None)


def run(model: str, video: Path | None, question: str, max_tokens: int) -> int:
    """Returns the exit code: 0 if there was an answer and the daemon stopped cleanly.

    Raises ConfigError if there is no such video or the server refuses the request.
    """
    video = (video or _SAMPLE).resolve()
    if not video.is_file():
        raise ConfigError(f"{video}: no such file")
    console = Console(highlight=False)
    console.print(f"[dim]starting the daemon for {model or 'the built-in model'} …[/]")
    with _daemon(model, video.parent) as (process, url), httpx.Client(base_url=url, timeout=_TIMEOUT) as client:
        console.print(f"[dim]{url}[/]\n[bold]{video.name}[/]: {question}")
        request_id, tokens = _ask(client, console, video, question, max_tokens)
        trace = client.get("/debug/trace", params={"request_id": request_id}).raise_for_status().json()
        console.print(gantt(trace, width=max(20, min(80, console.width - 36))))
    if process.returncode != 0:
        console.print(f"[red]the daemon ended with code {process.returncode}[/]")
    return 0 if tokens > 0 and process.returncode == 0 else 1


@contextmanager
def _daemon(model: str, media: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A daemon on a free port, ready to answer; stopped and waited for at the end."""
    command = [sys.executable, "-m", "unifiedserve.cli", "serve", *([model] if model else []), "--port", "0"]
    command += ["--allowed-local-media-path", str(media)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process, _wait_ready(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate()


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if match := _READY.match(line):
            return match[1]
    raise ConfigError(f"the daemon ended with code {process.wait()} before it was ready")


def _ask(client: httpx.Client, console: Console, video: Path, question: str, max_tokens: int) -> tuple[str, int]:
    """Print the answer as it streams; returns the request's id and the number of generated tokens."""
    parts = [{"type": "video_url", "video_url": {"url": video.as_uri()}}, {"type": "text", "text": question}]
    body = {
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tokens = 0
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise ConfigError(json.loads(response.read())["error"]["message"])
        for chunk in _events(response):
            for choice in chunk["choices"]:
                console.print(choice["delta"].get("content", ""), end="", markup=False, soft_wrap=True)
            tokens = (chunk["usage"] or {}).get("completion_tokens", tokens)
        console.print("\n")
        return response.headers["x-request-id"], tokens


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The chunks of a stream; raises ConfigError for an error among them."""
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if data and data != "[DONE]":
            chunk: dict[str, Any] = json.loads(data)
            if "error" in chunk:
                raise ConfigError(chunk["error"]["message"])
            yield chunk
