"""The rows of the table, and what is computed from the figures of all rounds."""

import statistics
from dataclasses import dataclass
from typing import Any

from contestants import read

YARDSTICK = "vllm"
AT_A_TIME = (1, 4, 8, 16, 32)  # streams

MS, PERCENT, MIB = 1e3, 100.0, 2**-20


@dataclass(frozen=True)
class Row:
    """One figure of a workload; `scale` turns it into the unit of the label."""

    workload: str
    figure: str
    label: str
    scale: float = 1.0
    more: bool = False  # whether more is better

    @property
    def title(self) -> str:
        return f"{WORKLOADS[self.workload]}: {self.label}"


WORKLOADS = {
    "decode": "one stream",
    "prompt": "one prompt of 768 tokens",
    "streams": "streams at once",
    "text8": "8 texts at once",
    "images": "8 images, 4 at a time",
    "video": "one video, idle",
    "phases": "texts of 100 tokens in every phase of a long video",
    "phases1": "the same, 1 stream",
    "stall1": "4 streams, 1 video arrives",
    "stall4": "4 streams, 4 videos arrive",
    "memory": "memory (PSS)",
    "memory_text": "memory (PSS), texts",
}
STALL = [
    ("idle_gap", "gap before, ms", MS, False),
    ("worst_gap", "worst gap, ms", MS, False),
    ("frozen", "time in gaps over 5 × that before, %", PERCENT, False),
    ("before", "tokens/s before", 1.0, True),
    ("during", "tokens/s during", 1.0, True),
    ("kept", "tokens/s kept, %", PERCENT, True),
    ("ttft", "the videos' mean TTFT, s", 1.0, False),
]
PHASES = [
    ("idle", "TTFT alone, p50, s", 1.0, False),
    ("median", "TTFT, p50, s", 1.0, False),
    ("median_ratio", "TTFT, p50, × alone", 1.0, False),
    ("worst", "TTFT, worst, s", 1.0, False),
    ("worst_ratio", "TTFT, worst, × alone", 1.0, False),
    ("alone", "the video's TTFT without texts, s", 1.0, False),
    ("ttft", "the video's TTFT, s", 1.0, False),
    ("late", "sent late by at most, ms", MS, False),
]
STREAM = [
    ("idle_gap", "gap before, p50, ms", MS, False),
    ("gap_p50", "gap, p50, ms", MS, False),
    ("gap_p99", "gap, p99, ms", MS, False),
    ("worst_gap", "gap, worst, ms", MS, False),
]
ROWS = [
    Row("decode", "tbt", "time between tokens, p50, ms", MS),
    Row("decode", "over_floor", "× the bandwidth floor"),
    Row("prompt", "ttft", "TTFT, p50, s"),
    *(Row("streams", f"tokens{n}", f"{n}: tokens/s", more=True) for n in AT_A_TIME),
    *(Row("streams", f"tbt{n}", f"{n}: time between tokens, p50, ms", MS) for n in AT_A_TIME),
    Row("text8", "tokens", "tokens/s", more=True),
    Row("text8", "ttft", "mean TTFT, s"),
    Row("images", "requests", "images/s", more=True),
    Row("images", "ttft", "mean TTFT, s"),
    Row("video", "ttft", "TTFT, s"),
    *(Row("phases", *rest) for rest in PHASES),
    *(Row("phases1", *rest) for rest in PHASES + STREAM),
    *(Row("stall1", *rest) for rest in STALL),
    *(Row("stall4", *rest) for rest in STALL),
    Row("memory", "idle", "started, MiB", MIB),
    Row("memory", "peak", "peak with 4 videos, MiB", MIB),
    Row("memory_text", "idle", "started, MiB", MIB),
    Row("memory_text", "peak", "peak with 4 streams, MiB", MIB),
]


def servers_of(document: dict[str, Any]) -> list[str]:
    """Return the names of the servers that were to run, in their order."""
    return list(dict.fromkeys(name for round_ in document["rounds"] for name in round_["servers"]))


def pair_of(document: dict[str, Any]) -> tuple[str, str] | None:
    """Return the names of the first server and of what it is compared with: vLLM, or else the second one."""
    first, *others = servers_of(document)
    yardstick = next((name for name in others if read(name).kind == YARDSTICK), next(iter(others), None))
    return (first, yardstick) if yardstick else None


def workload_of(round_: dict[str, Any], server: str, workload: str) -> dict[str, Any]:
    """Return the figures of a workload; empty if there are none."""
    figures: dict[str, Any] = round_["servers"].get(server, {}).get(workload, {})
    return figures


def values(document: dict[str, Any], server: str, row: Row) -> list[float]:
    """Return a value a round, in the row's unit; rounds without one are left out."""
    found = (workload_of(round_, server, row.workload).get(row.figure) for round_ in document["rounds"])
    return [value * row.scale for value in found if value is not None]


def ratios(document: dict[str, Any], pair: tuple[str, str], row: Row) -> list[float]:
    """Return the first server's value over the second's, round by round."""
    pairs = (
        [workload_of(round_, name, row.workload).get(row.figure) for name in pair] for round_ in document["rounds"]
    )
    return [mine / other for mine, other in pairs if mine is not None and other]


def bandwidths(document: dict[str, Any]) -> list[float]:
    """Return the read bandwidth of each round, bytes a second."""
    return [round_["bandwidth"] for round_ in document["rounds"]]


def failures(document: dict[str, Any], server: str) -> list[str]:
    """Return what went wrong, each once, with the workload's name where it was one of them only."""
    found: dict[str, None] = {}
    for round_ in document["rounds"]:
        answers = round_["servers"].get(server, {})
        if "failure" in answers:
            found[answers["failure"]] = None
        for workload in WORKLOADS:
            if failure := workload_of(round_, server, workload).get("failure"):
                found[f"{workload}: {failure}"] = None
    return list(found)


def spread(numbers: list[float]) -> str:
    """Format the median, with the lowest and the highest where there are several."""
    if not numbers:
        return ""
    middle = digits(statistics.median(numbers))
    return middle if len(numbers) == 1 else f"{middle} ({digits(min(numbers))}–{digits(max(numbers))})"


def digits(value: float) -> str:
    """Format with about three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
