"""Thousands of damaged real videos, each analysed, planned and decoded in part, within bounds of time and memory.

Case N is file N modulo the number of files, mutated with seed N: the same everywhere. The results of each
build go to OUT/<name>.jsonl as they come; a run that is stopped goes on there. OUT/summary.json says what was found.
Reproduce case N of a file with `mutated_worker --write FILE N out.mp4`.
"""

import argparse
import collections
import json
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import seeds

# Far above what any case takes on an idle machine: what is over them is a hang, or memory without bound.
MAX_SECONDS = 90.0
MAX_PEAK_MB = 1200
# A worker is replaced after so many cases, and what it holds by then above its start is looked at.
CASES_PER_WORKER = 200
MAX_LEFT_MB = 700
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=32:allocator_may_return_null=1:detect_odr_violation=0",
    "LSAN_OPTIONS": "print_suppressions=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}

Result = dict[str, Any]


class Worker:
    """A process that runs cases until one kills it."""

    def __init__(self, program: Path) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=ENVIRONMENT
        )
        self.cases = 0

    def run(self, path: Path, seed: int) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.cases += 1
        self._log.seek(0)
        self._log.truncate()
        self._process.stdin.write(f"{path}\t{seed}\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], MAX_SECONDS)[0]:
            self._process.kill()
            return {"outcome": "hang"}
        line = self._process.stdout.readline()
        if not line:
            return {"outcome": "crash", "exit": self._process.wait(), "log": self.log()}
        result: Result = json.loads(line)
        if result["leaks"]:
            result["log"] = self.log()
        return result

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-6000:]

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def finding(result: Result) -> str | None:
    """What is wrong with a result, if anything is."""
    if result["outcome"] in ("hang", "crash"):
        return str(result["outcome"])
    if result["leaks"]:
        return "leak"
    if result["peak_mb"] > MAX_PEAK_MB:
        return "memory"
    if result["left_mb"] > MAX_LEFT_MB:
        return "memory kept"
    return None


def run_build(program: Path, files: list[Path], numbers: range, out: Path) -> None:
    known = {json.loads(line)["case"] for line in out.read_text().splitlines()} if out.exists() else set()
    worker: Worker | None = None
    with out.open("a") as results:
        for number in numbers:
            if number in known:
                continue
            if worker is not None and (not worker.alive() or worker.cases >= CASES_PER_WORKER):
                worker.close()
                worker = None
            worker = worker or Worker(program)
            path = files[number % len(files)]
            result = worker.run(path, number)
            results.write(json.dumps({"case": number, "file": path.name, **result, "finding": finding(result)}) + "\n")
            results.flush()
            if result["outcome"] == "hang":
                worker.close()
                worker = None
    if worker is not None:
        worker.close()


def summarise(out: Path, builds: list[str]) -> Result:
    summary: Result = {}
    for build in builds:
        rows = [json.loads(line) for line in (out / f"{build}.jsonl").read_text().splitlines()]
        timed = [row for row in rows if "seconds" in row]
        summary[build] = {
            "cases": len(rows),
            "outcomes": collections.Counter(row["outcome"] for row in rows),
            "findings": [row for row in rows if row["finding"]],
            "seconds_max": max(row["seconds"] for row in timed),
            "peak_mb_max": max(row["peak_mb"] for row in timed),
            "slowest": [(row["case"], row["file"]) for row in sorted(timed, key=lambda row: -row["seconds"])[:5]],
        }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def find_videos(folder: Path | None, out: Path) -> list[Path]:
    generated = out / "generated"
    if not generated.exists():
        generated.mkdir()
        seeds.generate(generated)
    folders = [generated] if folder is None else [folder, generated]
    files = [path for each in folders for path in each.rglob("*") if path.is_file() and path.suffix != ".md"]
    return sorted((path for path in files if path.stat().st_size > 0), key=lambda path: path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker", nargs="+", help="NAME=PROGRAM, a build of mutated_worker")
    parser.add_argument("--videos", type=Path, help="folder with videos, searched through and through")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/mutated"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = find_videos(arguments.videos, arguments.out)
    numbers = range(arguments.first, arguments.first + arguments.count)
    builds = dict(worker.split("=", 1) for worker in arguments.worker)
    threads = [
        threading.Thread(target=run_build, args=(Path(program), files, numbers, arguments.out / f"{name}.jsonl"))
        for name, program in builds.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summary = summarise(arguments.out, list(builds))
    for name, part in summary.items():
        counts = collections.Counter(row["finding"] for row in part["findings"])
        print(f"{name}: {part['cases']} cases, {dict(part['outcomes'])}, findings: {dict(counts) or 'none'}")
    sys.exit(any(part["findings"] for part in summary.values()))


if __name__ == "__main__":
    main()
