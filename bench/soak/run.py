"""Hours of mixed load on a daemon, one of whose workers dies every few minutes: nothing may be lost, wrong or grow.

    python bench/soak/run.py [--hours 2] [--kill-every 300] [--out bench/results/soak] [-- OPTIONS OF SERVE]

Streams, texts, images and videos are asked by some users, a tenth of whom leave. Every answer must be, letter for
letter, that of the quiet server. The report, its picture, its figures and all that was seen go to a folder; the exit
code is 1 if there are findings.
"""

import argparse
import asyncio
import gzip
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[0] = str(_REPOSITORY)

import msgspec  # noqa: E402

from bench.soak.drawing import draw  # noqa: E402
from bench.soak.report import as_markdown, figures, findings  # noqa: E402
from bench.soak.soak import Options, run  # noqa: E402


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(description="Mixed load for hours, while workers die.")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--kill-every", type=float, default=300.0, help="seconds from one death to the next")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--thinking", type=float, default=3.0, help="seconds in the mean before a user asks again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=_REPOSITORY / "bench/results/soak", help="folder for the report")
    parser.add_argument("serve", nargs="*", help="options of the daemon, after --")
    given = parser.parse_args()
    seconds = given.hours * 3600
    options = Options(seconds, given.kill_every, given.clients, given.thinking, given.seed, tuple(given.serve))
    soak = asyncio.run(run(options))
    given.out.mkdir(parents=True, exist_ok=True)
    told = {"command": soak.command, "machine": soak.machine, "figures": figures(soak), "kills": soak.kills}
    (given.out / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(told)) + b"\n")
    (given.out / "soak-seen.json.gz").write_bytes(gzip.compress(msgspec.json.encode(soak)))
    (given.out / "soak.md").write_text(report := as_markdown(soak))
    draw(given.out / "soak.png", soak)
    print(report)
    return int(bool(findings(soak)))


if __name__ == "__main__":
    sys.exit(main())
