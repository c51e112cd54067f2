"""A daemon on a device, and requests to it, for items: what it answers, when, and what its trace says."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.gpu import machine
from unifiedserve.cli.daemon import daemon

PATIENCE = 120.0  # seconds for an answer


class Served:
    """A daemon that is ready."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=PATIENCE)
        self._pid = pid

    def upload(self, clip: Path) -> str:
        """Return the id under which the daemon knows a clip."""
        with clip.open("rb") as file:
            sent = self._client.post("/v1/files", data={"purpose": "vision"}, files={"file": (clip.name, file)})
        return str(_json(sent)["id"])

    def ask(self, question: str, clip: str, *, frames: int = 16, tokens: int = 48) -> dict[str, Any]:
        """Return the greedy answer to a question about an uploaded clip: text, tokens, seconds, and request's id."""
        content = [{"type": "video_url", "video_url": {"url": clip}}, {"type": "text", "text": question}]
        body = {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0,
            "media_io_kwargs": {"video": {"num_frames": frames}},
        }
        start = time.perf_counter()
        answer = _json(self._client.post("/v1/chat/completions", json=body))
        return {
            "text": answer["choices"][0]["message"]["content"],
            "prompt_tokens": answer["usage"]["prompt_tokens"],
            "tokens": answer["usage"]["completion_tokens"],
            "seconds": time.perf_counter() - start,
            "id": answer["id"],
        }

    def trace(self, request: str) -> list[dict[str, Any]]:
        """Return a request's timeline, as Chrome's trace events."""
        events: list[dict[str, Any]] = _json(self._client.get("/debug/trace", params={"request_id": request}))[
            "traceEvents"
        ]
        return events

    def used_pages(self) -> dict[str, float]:
        """Return the pages in use, by buffer."""
        lines = self._client.get("/metrics").text.splitlines()
        used = [line for line in lines if "buffer_used_pages{" in line]
        return {line.split('buffer="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in used}

    def is_healthy(self) -> bool:
        return self._client.get("/health").status_code == 200

    def workers(self) -> dict[str, int]:
        """Return the process ids below the daemon, by the names that the processes give themselves."""
        found, below = dict[str, int](), [self._pid]
        while below:
            children = _children(below.pop())
            below += children
            found |= {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in children}
        return found


@contextmanager
def served(model: str | Path, device: str, *options: str) -> Iterator[Served]:
    """Start a daemon on a device, with its sandbox or without as items are told, and end it."""
    sandbox = os.environ.get(machine.SANDBOX_VARIABLE, "auto")
    with daemon(model, "--device", device, "--sandbox", sandbox, *options) as started:
        yield Served(started.url, started.process.pid)


def _json(response: httpx.Response) -> Any:
    if response.is_error:
        raise RuntimeError(f"{response.request.url.path} answered {response.status_code}: {response.text[:300]}")
    return response.json()


def _children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
