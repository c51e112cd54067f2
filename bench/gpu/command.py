"""The command line of `run_all.py`."""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from bench.gpu import machine, report
from bench.gpu.item import Item
from bench.gpu.needs import Needs
from bench.gpu.parts import PARTS, chosen
from bench.gpu.runner import Runner


def main() -> int:
    """Run the chosen items; return 0 if none failed or ran out of its own time, 130 after Ctrl-C."""
    options = _parse()
    items = chosen(options.part, options.only)
    if options.list:
        print("\n".join(_described(part, item) for part, item in items))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-bench-", ignore_cleanup_errors=True) as scratch:
        environment = machine.environment(options.carried)
        runner = Runner(options.out, Path(scratch), Needs(environment), environment, options.deadline)
        interrupted = runner.run(items, machine.describe(environment))
    text, records = report.of_folder(options.out)
    print(text)
    (options.out / "report.md").write_text(report.as_markdown(records))
    bad = [record for record in runner.records if record["status"] in ("failed", "timeout")]
    return 130 if interrupted else 1 if bad else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_all.py", description="Try everything that needs a GPU, item by item.")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--only", action="append", default=[], metavar="ITEM", help="these items only")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--out", type=Path, default=Path("build/gpu/results"), help="folder of the results")
    parser.add_argument("--deadline", type=float, default=540.0, metavar="SECONDS", help="for everything together")
    parser.add_argument("--carried", type=Path, default=machine.CARRIED, help="what carry.py assembled")
    options = parser.parse_args()
    if unknown := set(options.only) - {item.name for _, item in chosen(options.part, [])}:
        parser.error(f"no item {', '.join(sorted(unknown))} in part {options.part}; --list shows them")
    return options


def _described(part: str, item: Item) -> str:
    needs = f" (needs: {', '.join(item.needs)})" if item.needs else ""
    return f"{part:<6} {item.name:<18} ≤ {item.limit:3.0f} s  {item.meaning}{needs}"


if __name__ == "__main__":
    os.chdir(machine.ROOT)
    sys.exit(main())
