"""Show a request at work, in the terminal: its answer, its way through the stages, times and buffers."""

import secrets
import time
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from unifiedserve.cli.gantt import gantt
from unifiedserve.cli.seen import seen_lines

_BESIDE_THE_CHART = 36  # columns of labels and times
_NO_STEP = ("queue", "pull")  # spans of a stage in which it does not work


class LiveView:
    """View one request through its answer's chunks and the events of /v1/events. Rich renders it."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(16)
        self.tokens = 0
        self._answer = ""
        self._finished = False
        self._spans: list[dict[str, Any]] = []
        self._seen: list[str] = []
        self._frames = 0
        self._frames_in_all = 0
        self._buffers: dict[str, dict[str, int]] = {}
        self._started = time.monotonic()
        self._first: float | None = None

    @property
    def request(self) -> str:
        """Return the request's id in the API, once it is sent under this view's name."""
        return f"chatcmpl-{self.name}"

    def take_chunk(self, chunk: dict[str, Any]) -> None:
        for choice in chunk["choices"]:
            if "role" not in choice["delta"] and self._first is None:
                self._first = time.monotonic() - self._started
            self._answer += choice["delta"].get("content") or ""
        if usage := chunk.get("usage"):
            self.tokens = usage["completion_tokens"]
            self._seen = seen_lines(usage.get("media", []))

    def take_event(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "spans":
                self._spans += [span for span in event["events"] if self.request in span["args"]["requests"]]
            case "admitted" if event["request"] == self.request:
                self._frames_in_all = sum(medium["frames"] for medium in event["media"])
            case "frames":
                self._frames += len(event["frames"])
            case "counters":
                self._buffers = event["buffers"]

    def finish(self, spans: list[dict[str, Any]]) -> None:
        """Show the answer as complete; `spans` are all of its events in the trace."""
        self._spans = [span for span in spans if span["ph"] == "X"]
        self._finished = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._spans:
            chart = gantt(self._spans, width=max(20, min(80, options.max_width - _BESIDE_THE_CHART)))
            yield Group(Text(self._answer.strip()), Text(), chart, Text(), Text(self._figures(), "dim"))
        elif self._finished:  # by a server that has forgotten its work, or never tells
            yield Text(self._answer.strip())

    def _figures(self) -> str:
        steps = sorted(span["ts"] + span["dur"] for span in self._spans if _decodes(span))
        gaps = sorted(after - before for before, after in pairwise(steps))
        figures = []
        if self._first is not None:
            figures.append(f"first token after {self._first * 1000:.0f} ms")
        if gaps:
            median, high = (gaps[int(share * (len(gaps) - 1))] / 1000 for share in (0.5, 0.99))
            rate = len(gaps) / (steps[-1] - steps[0]) * 1e6
            figures.append(f"between tokens p50 {median:.1f} ms, p99 {high:.1f} ms")
            figures.append(f"{rate:.1f} tokens/s")
        if self._frames_in_all:
            figures.append(f"frames decoded {self._frames} of {self._frames_in_all}")
        full = [f"{name} {pages['used'] / pages['total']:.0%}" for name, pages in self._buffers.items()]
        buffers = ["buffers: " + ", ".join(full)] if full else []
        return "\n".join([" · ".join(figures), *self._seen, *buffers])


def _decodes(span: dict[str, Any]) -> bool:
    return span["cat"] == "decode" and span["name"] not in _NO_STEP
