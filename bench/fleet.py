"""What 10,000 nodes' load reports cost a router: bytes and seconds a second to read, and the time of a decision.

Nothing is started: reports are made, read and ranked as a router does it, in this process.

    python bench/fleet.py --nodes 10000 --json bench/results/fleet.json
"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from cluster import decision_seconds

from unifiedserve.cluster.routing import Fleet, Policy
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EngineLoad, LoadReport

LOOKS = 5  # a second at each node
HEADERS = 400  # bytes of the request and of the answer's head, about


def reports(nodes: int) -> list[bytes]:
    """Return what busy nodes tell."""
    draw = np.random.default_rng(0)
    costs = Costs(decode=0.02, prompt_token=2e-4, visual_token=3e-4, image_pixel=1e-8, video_second=1.0)
    return [
        msgspec.json.encode(
            LoadReport(
                model="Qwen/Qwen2.5-VL-3B-Instruct",
                version="0.1.0",
                started=1_800_000_000 + number,
                healthy=True,
                max_model_len=32768,
                load=EngineLoad(
                    wait=float(draw.exponential(2)),
                    in_flight=int(draw.integers(50)),
                    prompt_tokens=int(draw.integers(50_000)),
                    visual_tokens=int(draw.integers(50_000)),
                    kv_free=int(draw.integers(9000)),
                    kv_total=9000,
                    work=float(draw.exponential(9000)),
                    costs=costs,
                ),
            )
        )
        for number in range(nodes)
    ]


def report_seconds(told: list[bytes]) -> float:
    """Return the mean seconds to read a report and to take it; connections are not counted."""
    fleet = Fleet(Policy.COST)
    for number, line in enumerate(told):
        fleet.update(f"node-{number}", msgspec.json.decode(line, type=LoadReport).load)
    began = time.perf_counter()
    for number, line in enumerate(told):
        fleet.update(f"node-{number}", msgspec.json.decode(line, type=LoadReport).load)
    return (time.perf_counter() - began) / len(told)


def main(
    nodes: Annotated[int, typer.Option(min=2, help="Nodes that report")] = 10_000,
    decisions: Annotated[int, typer.Option(min=1, help="Decisions that are timed")] = 500,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save the figures")] = None,
) -> None:
    """Measure what so many nodes cost a router."""
    told = reports(nodes)
    seconds = report_seconds(told)
    size = sum(map(len, told)) / nodes
    figures = {
        "command": " ".join(["python", *sys.argv]),
        "machine": describe_machine(),
        "nodes": nodes,
        "report_bytes": round(size),
        "bytes_a_second": round(LOOKS * nodes * (size + HEADERS)),
        "report_us": round(seconds * 1e6, 2),
        "cores_for_reports": round(LOOKS * nodes * seconds, 3),
        "decision_us": {str(policy): round(decision_seconds(nodes, policy, decisions) * 1e6, 1) for policy in Policy},
    }
    print(json.dumps(figures, indent=1))
    if json_file is not None:
        json_file.write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    typer.run(main)
