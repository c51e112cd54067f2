"""The command line of the campaign, from its options to the exit code."""

import argparse
import asyncio
import signal
from pathlib import Path

from bench.campaign import report, travel
from bench.campaign.campaign import ALONE, FAULTS, PARTS, Options, run

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = 400  # cases


def options(arguments: list[str] | None = None) -> tuple[Options, Path]:
    """Read the command line: what is to be done, and where the report goes."""
    parser = argparse.ArgumentParser(description="Hostile clients, media and checkpoints against the daemon.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000, help="cases in all, about")
    parser.add_argument("--minutes", type=float, default=15, help="after which no further case begins")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be given several times")
    parser.add_argument("--quick", action="store_true", help="two minutes, without attacks, signals, travel, faults")
    parser.add_argument("--case", help="PART:INDEX, as in a report: this one alone")
    parser.add_argument("--videos", type=Path, help="folder with more media, searched through and through")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "bench/results/campaign", help="folder for the report")
    given = parser.parse_args(arguments)
    count, minutes = (QUICK, 2.0) if given.quick else (given.count, given.minutes)
    case = None
    if given.case:
        part, _, index = given.case.partition(":")
        case = (part, int(index))
    slow = {travel.NAME, FAULTS, *(alone.name for alone in ALONE)}
    parts = [part for part in PARTS if not given.quick or part not in slow]
    return Options(given.seed, count, minutes, given.only or parts, given.videos, case), given.out


def name_of(wanted: Options) -> str:
    """Return the name of the report: what is left out does not overwrite what has it all."""
    return "all" if set(wanted.parts) == set(PARTS) else "-".join(part for part in PARTS if part in wanted.parts)


async def _until_signal(wanted: Options) -> report.Report:
    """Run it; SIGTERM ends it as Ctrl-C does, with all that it started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(wanted)


def main() -> int:
    """Run the command; return the exit code."""
    wanted, out = options()
    found = asyncio.run(_until_signal(wanted))
    if wanted.case is None:
        report.write(found, out, name_of(wanted))
    print(report.as_markdown(found))
    if found.findings:
        print(f"{len(found.findings)} findings; `--seed {wanted.seed} --case PART:INDEX` runs a case again")
    return int(bool(found.findings))
