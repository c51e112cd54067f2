"""The command line of `run_all.py`."""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.gpu import luggage, machine, report
from bench.gpu.item import Item
from bench.gpu.parts import PARTS, of_part
from bench.gpu.results import ARCHIVE, Results
from bench.gpu.runner import Runner
from bench.gpu.visits import VISITS, of_visit

KEPT = "bench/results/gpu"


def main() -> int:
    """Run the chosen items; return 0 if none failed or ran out of its own time, 130 after Ctrl-C."""
    options = _parse()
    if options.list:
        print("\n".join(map(_described, options.items)))
        return 0
    return run(options.items, options)


def run(items: Sequence[Item], options: argparse.Namespace) -> int:
    """Run items as the options say, and print the table."""
    end = time.monotonic() + options.deadline
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    environment = machine.environment(options.carried) | {machine.SANDBOX_VARIABLE: options.sandbox}
    notes = luggage.complaints(options.carried)
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    header = machine.describe(environment) | {"notes": notes}
    results = Results(options.out, options.visit or options.part, header, [item.name for item in items])
    with tempfile.TemporaryDirectory(prefix="gpu-bench-", ignore_cleanup_errors=True) as scratch:
        interrupted = Runner(options.out, results, Path(scratch), environment, end).run(items)
    print("", report.as_text(results.content), sep="\n")
    print(f"To keep it: mkdir -p {KEPT} && tar -xzf {options.out / ARCHIVE} -C {KEPT} --exclude='*.log'", flush=True)
    bad = any(record["status"] in ("failed", "timeout") for record in results.content["items"])
    return 130 if interrupted else int(bad)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_all.py", description="Try everything that needs a GPU, item by item.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--visit", choices=VISITS, help="what tells most within ten minutes, in four runs")
    which.add_argument("--part", choices=[*PARTS, "all"], default="all", help="everything, or all of one kind")
    parser.add_argument("--only", action="append", default=[], metavar="ITEM", help="these items only")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--out", type=Path, default=Path("build/gpu/results"), help="folder of the results")
    parser.add_argument("--deadline", type=float, default=580.0, metavar="SECONDS", help="for everything together")
    parser.add_argument("--carried", type=Path, default=machine.CARRIED, help="what carry.py assembled")
    parser.add_argument(
        "--sandbox", choices=["auto", "off"], default="auto", help="of served engines; auto: off if its probe fails"
    )
    options = parser.parse_args()
    items = of_visit(options.visit) if options.visit else of_part(options.part)
    if unknown := set(options.only) - {item.name for item in items}:
        named = f"visit {options.visit}" if options.visit else f"part {options.part}"
        parser.error(f"no item {', '.join(sorted(unknown))} in {named}; --list shows them")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out}: {error.strerror}")
    options.items = [item for item in items if not options.only or item.name in options.only]
    return options


def _described(item: Item) -> str:
    needs = f" (needs: {', '.join(item.needs)})" if item.needs else ""
    return f"{item.name:<18} ≤ {item.limit:3.0f} s  {item.meaning}{needs}"


if __name__ == "__main__":
    sys.exit(main())
