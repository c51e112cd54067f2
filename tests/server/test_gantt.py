"""The Gantt chart: which cells of the line are queued, running, or neither."""

from typing import Any

from rich.console import Console

from unifiedserve.cli.gantt import bars_of, busy, gantt
from unifiedserve.cli.live_view import LiveView


def trace(*events: tuple[str, str, float, float]) -> list[dict[str, Any]]:
    """Events (stage, name, start, end) in microseconds."""
    stages = ["vision", "encode", "prefill", "decode"]
    return [
        {"ph": "X", "name": name, "cat": stage, "pid": stages.index(stage), "ts": start, "dur": end - start}
        for stage, name, start, end in events
    ]


def lines(shown: list[dict[str, Any]], width: int) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(gantt(shown, width))
    return capture.get().splitlines()[1:]


def test_cells_follow_the_intervals() -> None:
    shown = trace(
        ("vision", "queue", 1000, 2000),
        ("vision", "decode", 2000, 5000),
        ("decode", "step", 9000, 10000),
        ("decode", "step", 10000, 11000),
    )
    vision, decode = lines(shown, width=10)
    assert vision[8:18] == "·███      "
    assert decode[8:18] == "        ██"
    assert vision.split()[-3:] == ["1.0", "4.0", "3.0"]
    assert decode.split()[-3:] == ["8.0", "10.0", "2.0"]


def test_short_events_are_still_visible() -> None:
    (line,) = lines(trace(("encode", "x", 0, 1), ("encode", "x", 1000, 1001)), width=10)
    assert line[8:18] == "█        █"


def test_stages_without_events_are_left_out() -> None:
    assert [bar.stage for bar in bars_of(trace(("prefill", "x", 0, 1)))] == ["prefill"]
    assert lines(trace(), 10) == []


def test_pages_that_travel_have_a_line_before_their_stage() -> None:
    spans = trace(("decode", "step", 5, 9), ("decode", "queue", 1, 2), ("decode", "pull", 2, 5), ("prefill", "x", 0, 1))
    assert [bar.stage for bar in bars_of(spans)] == ["prefill", "→ decode", "decode"]
    assert bars_of(spans)[1].running == [(2, 5)]


def test_overlapping_work_is_busy_once() -> None:
    assert busy([(0, 4), (2, 3), (3, 6), (8, 9)]) == 7


def test_the_time_between_tokens_is_that_of_whichever_instance_decodes() -> None:
    waiting = trace(("decode", "queue", 0, 4000), ("decode", "pull", 4000, 9000))
    steps = trace(("decode", "decode", 9000, 10000), ("decode", "decode", 10000, 12000))
    view = LiveView()
    view.finish([event | {"tid": tid} for event, tid in zip(waiting + steps, (1000, 1001, 1001, 1001), strict=True)])
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view)
    assert "between tokens p50 2.0 ms, p99 2.0 ms · 500.0 tokens/s" in capture.get()


def test_an_answer_is_shown_though_its_work_is_not_known() -> None:
    view = LiveView()
    view.take_chunk({"choices": [{"delta": {"content": "A telescope."}}], "usage": None})
    view.finish([])
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view)
    assert capture.get().strip() == "A telescope."
