"""Thousands of small videos whose containers do not say what is in them: does FlashCodec decode them as FFmpeg does?

The cases are those of tests/flashcodec/faulty_files, drawn from a seed: clips of each codec in each container, with
faults. OUT/report.json counts outcomes by codec, container and fault, and has an example of each failure, made as
simple as it gets. `--case "CLIP CONTAINER FAULT=NUMBERS ..."` runs one case and keeps its file.
"""

import argparse
import collections
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests" / "flashcodec"), str(REPOSITORY / "tests" / "suite")]

from faulty_files.case import Case, Workshop  # noqa: E402
from faulty_files.check import REFUSED, Checker, Verdict  # noqa: E402
from faulty_files.clips import CLIPS  # noqa: E402
from faulty_files.reference import Reference  # noqa: E402
from faulty_files.strategies import draw  # noqa: E402

MAX_ATTEMPTS = 40  # to simplify one case
REPORT_EVERY = 100


class Bench(threading.local):
    """Each thread's file and process to check it in."""

    def __init__(self, out: Path) -> None:
        self._path = out / f"case-{threading.get_ident()}"
        self._workshop = Workshop(out / "clips")
        self._checker = Checker()

    def check(self, case: Case) -> Verdict:
        path = self._workshop.write(case, self._path)
        verdict = self._checker.check(path, None, case)
        path.unlink()
        return verdict


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases with a fault less, then with smaller numbers."""
    for place in range(len(case.faults)):
        yield replace(case, faults=case.faults[:place] + case.faults[place + 1 :])
    for place, (name, numbers) in enumerate(case.faults):
        for which, number in enumerate(numbers):
            for smaller in sorted({0, number // 2, number - 1} & set(range(number))):
                changed = (name, (*numbers[:which], smaller, *numbers[which + 1 :]))
                yield replace(case, faults=(*case.faults[:place], changed, *case.faults[place + 1 :]))


def simplified(case: Case, outcome: str, check: Callable[[Case], Verdict]) -> Case:
    """Return a simple case that fails in the same way."""
    attempts = 0
    candidates = simpler(case)
    while attempts < MAX_ATTEMPTS:
        candidate = next(candidates, None)
        if candidate is None:
            break
        attempts += 1
        if check(candidate).outcome == outcome:
            case, candidates = candidate, simpler(candidate)
    return case


def kind(case: Case, verdict: Verdict) -> tuple[str, ...]:
    """Return what failures have in common that are likely to have one cause."""
    return (verdict.outcome, CLIPS[case.clip].codec, case.container, *sorted({name for name, _ in case.faults}))


def run(cases: list[Case], jobs: int, bench: Bench) -> list[Verdict]:
    started = time.monotonic()
    verdicts: list[Verdict] = []
    counts: collections.Counter[str] = collections.Counter()
    with ThreadPoolExecutor(jobs) as pool:
        for verdict in pool.map(bench.check, cases):
            verdicts.append(verdict)
            counts[verdict.outcome] += 1
            if len(verdicts) % REPORT_EVERY == 0:
                seconds = time.monotonic() - started
                print(f"{len(verdicts)} of {len(cases)}, {seconds:.0f} s: {dict(counts)}", flush=True)
    return verdicts


def failures(cases: list[Case], verdicts: list[Verdict], jobs: int, bench: Bench) -> list[dict[str, Any]]:
    """Return an example of each kind of failure; those that become the same when simplified are one."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case, verdict in zip(cases, verdicts, strict=True):
        if not verdict.allowed:
            groups.setdefault(kind(case, verdict), []).append(case)
    with ThreadPoolExecutor(jobs) as pool:
        simple = pool.map(lambda key: simplified(groups[key][0], key[0], bench.check), groups)
        seen: collections.Counter[tuple[str, Case]] = collections.Counter()
        for key, case in zip(groups, simple, strict=True):
            seen[key[0], case] += len(groups[key])
        details = pool.map(lambda row: bench.check(row[1]).detail, seen)
        rows = zip(seen.items(), details, strict=True)
        return [
            {"outcome": outcome, "case": str(case), "detail": detail, "seen": count}
            for ((outcome, case), count), detail in sorted(rows, key=str)
        ]


def refusals(cases: list[Case], verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Return an example of each reason why a file that FFmpeg complains of is refused."""
    rows: dict[str, dict[str, Any]] = {}
    for case, verdict in zip(cases, verdicts, strict=True):
        if verdict.outcome == REFUSED:
            row = rows.setdefault(verdict.detail, {"reason": verdict.detail, "case": str(case), "seen": 0})
            row["seen"] += 1
    return sorted(rows.values(), key=lambda row: -int(row["seen"]))


def report(cases: list[Case], verdicts: list[Verdict], found: list[dict[str, Any]]) -> dict[str, Any]:
    names: dict[str, Callable[[Case], set[str]]] = {
        "codec": lambda case: {CLIPS[case.clip].codec},
        "container": lambda case: {case.container},
        "fault": lambda case: {name for name, _ in case.faults} or {"none"},
    }
    counts: dict[str, Any] = {"cases": len(cases), "outcomes": dict(collections.Counter(v.outcome for v in verdicts))}
    for what, names_of in names.items():
        table: dict[str, collections.Counter[str]] = {}
        for case, verdict in zip(cases, verdicts, strict=True):
            for name in names_of(case):
                table.setdefault(name, collections.Counter())[verdict.outcome] += 1
        counts[f"by {what}"] = {name: dict(table[name]) for name in sorted(table)}
    return {**counts, "failures": found, "refused": refusals(cases, verdicts)}


def show(text: str, out: Path) -> bool:
    case = Case.parse(text)
    path = Workshop(out / "clips").write(case, out / "case")
    checker = Checker()
    verdict = checker.check(path, None, case)
    checker.close()
    reference = Reference.of(path)
    print(f"{path}: {verdict.outcome} {verdict.detail}")
    print(f"FFmpeg: {len(reference.frames)} frames", *reference.complaints[:10], sep="\n  ")
    return verdict.allowed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=Path("build/against_ffmpeg"), help="folder of clips and of the report"
    )
    parser.add_argument("--case", help="run this one only")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    out = arguments.out.resolve()
    if arguments.case:
        sys.exit(not show(arguments.case, out))
    bench = Bench(out)
    cases = draw(arguments.count, arguments.seed)
    verdicts = run(cases, arguments.jobs, bench)
    found = failures(cases, verdicts, arguments.jobs, bench)
    version = subprocess.run(["ffmpeg", "-version"], check=True, capture_output=True, text=True).stdout.split()[2]
    result = {"seed": arguments.seed, "ffmpeg": version, **report(cases, verdicts, found)}
    (out / "report.json").write_text(json.dumps(result, indent=1) + "\n")
    for row in found:
        print(f"{row['outcome']} ({row['seen']}): --case '{row['case']}': {row['detail']}")
    print(f"{len(cases)} cases: {result['outcomes']}; see {out / 'report.json'}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
