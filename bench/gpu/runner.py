"""Runs items one after another, each in a process of its own, and writes down at once what came of it."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu import figures, machine, processes
from bench.gpu.brief import brief
from bench.gpu.item import Item, allowance
from bench.gpu.needs import PATIENCE, Needs
from bench.gpu.results import Results, trimmed

Record = dict[str, Any]

MARGIN = 5.0  # seconds of the deadline that are left for killing and for the table
LAST_WORDS = 2000  # characters of a log that a record keeps of what went wrong
SANDBOX_PROBE = "sandbox"


class Runner:
    """Items until `end` on the monotonic clock. The one that runs has its log and figures beside the results."""

    def __init__(self, out: Path, results: Results, scratch: Path, environment: Mapping[str, str], end: float) -> None:
        self._results, self._scratch = results, scratch
        self._environment, self._needs = dict(environment), Needs(environment)
        self._end = end - MARGIN
        self._told, self._log = out / "running.json", out / "running.log"

    def run(self, items: Sequence[Item]) -> bool:
        """Run items; return whether Ctrl-C or SIGTERM cut that short. What is known then stays."""
        processes.adopt_orphans()
        item, start = items[0], time.monotonic()
        try:
            for number, item in enumerate(items):
                start = time.monotonic()
                self._forget()
                self._results.put(item.name, {"status": "running", "seconds": 0.0})
                self._record(item, start, self._tried(item, items[number + 1 :]))
        except KeyboardInterrupt:
            if self._results.is_running(item.name):
                self._record(item, start, {"status": "failed", "error": "interrupted", **figures.read(self._told)})
            self._results.write()  # it may have been cut off, too
            return True
        finally:
            self._forget()
        return False

    def _tried(self, item: Item, later: Sequence[Item]) -> Record:
        if (patience := allowance(PATIENCE, self._left(), later)) <= 1:
            return {"status": "skipped", "error": "deadline"}
        if reason := self._needs.lacking(item.needs, patience):
            return {"status": "skipped", "error": reason}
        limit = max(1.0, allowance(item.limit, self._left(), later))
        told = self._run(item, limit)
        if told["status"] == "timeout" and limit < item.limit:
            told["error"] += " (deadline)"
        if item.name == SANDBOX_PROBE and told["status"] in ("failed", "timeout"):
            self._environment[machine.SANDBOX_VARIABLE] = "off"
        return told

    def _run(self, item: Item, limit: float) -> Record:
        folder = self._scratch / item.name
        folder.mkdir()
        command = [sys.executable, "-P", "-m", "bench.gpu.child", item.target, str(self._told), *item.arguments]
        with self._log.open("wb") as output:
            code = processes.run(command, self._environment, folder, output, limit)
        record = _outcome(code, figures.read(self._told), limit)
        if record["status"] in ("failed", "timeout"):
            record["tail"] = trimmed(self._log)[-LAST_WORDS:].decode(errors="replace")
        if item.serves and self._environment.get(machine.SANDBOX_VARIABLE) == "off":
            record["note"] = "served with --sandbox off"
        return record

    def _record(self, item: Item, start: float, told: Record) -> None:
        """Write down an item's outcome and its log, and say it in a line."""
        seconds = round(time.monotonic() - start, 2)
        record = {"seconds": seconds, **told, "brief": brief(told.get("figures", {}))}
        self._results.put(item.name, record, trimmed(self._log) if self._log.exists() else None)
        reason = f": {record['error']}" if "error" in record else ""
        print(f"{item.name:<18} {record['status']:<8} {record['seconds']:6.1f} s{reason}", flush=True)

    def _forget(self) -> None:
        for path in (self._log, self._told):
            path.unlink(missing_ok=True)

    def _left(self) -> float:
        return self._end - time.monotonic()


def _outcome(code: int | None, told: Record, limit: float) -> Record:
    found = {"figures": told["figures"]}
    if code is None:
        return {"status": "timeout", "error": f"not done within {limit:.0f} s", **found}
    if code != 0:
        died = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return {"status": "failed", "error": told.get("error", died), **found}
    if "skipped" in told:
        return {"status": "skipped", "error": told["skipped"], **found}
    return {"status": "ok", **found}
