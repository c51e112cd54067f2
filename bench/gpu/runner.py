"""Runs items one after another, each in a process of its own, and writes down at once what came of it."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu import figures, processes
from bench.gpu.item import Item
from bench.gpu.needs import Needs

Record = dict[str, Any]

MARGIN = 3.0  # seconds of the deadline that are left for killing and for the table
TAIL = 2000  # characters of a log that a record keeps of what went wrong


class Runner:
    """Items under one deadline, whose records go to a file a part."""

    def __init__(self, out: Path, scratch: Path, needs: Needs, environment: Mapping[str, str], deadline: float) -> None:
        self.records: list[Record] = []
        self._out, self._scratch, self._needs, self._environment = out, scratch, needs, environment
        self._end = time.monotonic() + deadline - MARGIN
        self._logs = out / "logs"

    def run(self, items: Sequence[tuple[str, Item]], header: Record) -> bool:
        """Run items, each given with its part; return whether Ctrl-C cut it short. What is known then stays."""
        processes.adopt_orphans()
        self._logs.mkdir(exist_ok=True)
        for part in dict.fromkeys(part for part, _ in items):
            self._journal(part).unlink(missing_ok=True)
            self._write(part, header)
        for part, item in items:
            start = time.monotonic()
            try:
                told = self._tried(item)
            except KeyboardInterrupt:
                self._record(
                    part, item, start, {"status": "failed", "error": "interrupted", **figures.read(self._told(item))}
                )
                return True
            self._record(part, item, start, told)
        return False

    def _tried(self, item: Item) -> Record:
        left = self._end - time.monotonic()
        if left <= 1:
            return {"status": "skipped", "error": "deadline"}
        if reason := self._needs.lacking(item.needs, left):
            return {"status": "skipped", "error": reason}
        left = max(1.0, self._end - time.monotonic())
        told = self._run(item, min(item.limit, left))
        if told["status"] == "timeout" and left < item.limit:
            told["error"] += " (deadline)"
        return told

    def _run(self, item: Item, limit: float) -> Record:
        told, log = self._told(item), self._logs / f"{item.name}.log"
        folder = self._scratch / item.name
        folder.mkdir()
        command = [sys.executable, "-P", "-m", "bench.gpu.child", item.target, str(told), *item.arguments]
        with log.open("wb") as output:
            code = processes.run(command, self._environment, folder, output, limit)
        record = _outcome(code, figures.read(told), limit)
        record["log"] = str(log.relative_to(self._out))
        if record["status"] in ("failed", "timeout"):
            record["tail"] = _tail(log)
        return record

    def _record(self, part: str, item: Item, start: float, told: Record) -> None:
        record = {"item": item.name, "seconds": round(time.monotonic() - start, 2), **told}
        self.records.append(record)
        self._write(part, record)
        reason = f": {record['error']}" if "error" in record else ""
        print(f"{item.name:<18} {record['status']:<8} {record['seconds']:6.1f} s{reason}", flush=True)

    def _write(self, part: str, record: Record) -> None:
        with self._journal(part).open("a") as journal:
            journal.write(json.dumps(record) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def _told(self, item: Item) -> Path:
        return self._scratch / f"{item.name}.json"

    def _journal(self, part: str) -> Path:
        return self._out / f"{part}.jsonl"


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


def _tail(log: Path) -> str:
    return log.read_bytes()[-TAIL:].decode(errors="replace")
