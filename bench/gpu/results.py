"""Write a run's results: JSON, a page, and an archive of both with the logs."""

import io
import json
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu import report

Record = dict[str, Any]
ARCHIVE, DATA, PAGE = "results.tar.gz", "results.json", "report.md"
HEAD, TAIL = 32 << 10, 192 << 10  # bytes of a log that are kept


class Results:
    """Keep a record of each item; all are there from the beginning, and are replaced as more is known."""

    def __init__(self, folder: Path, title: str, machine: Record, items: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._title, self._machine = folder, title, machine
        self._records: dict[str, Record] = {name: {"item": name, "status": "not run", "seconds": 0.0} for name in items}
        self._logs: dict[str, bytes] = {}
        self.write()

    @property
    def content(self) -> Record:
        """Return the content of the JSON file."""
        return {"machine": self._machine, "items": list(self._records.values())}

    def put(self, name: str, record: Record, log: bytes | None = None) -> None:
        """Replace an item's record; its log is given once, at its end."""
        if log is not None:
            self._logs[name] = log
            record |= {"log": f"logs/{name}.log"}
        self._records[name] = {"item": name, **record}
        self.write()

    def is_running(self, name: str) -> bool:
        return bool(self._records[name]["status"] == "running")

    def write(self) -> None:
        """Write the files, each of which is whole at any moment."""
        data, page = json.dumps(self.content).encode(), report.as_markdown(self.content).encode()
        logs = {f"logs/{name}.log": log for name, log in self._logs.items()}
        for name, content in ((DATA, data), (PAGE, page), (ARCHIVE, self._packed({DATA: data, PAGE: page, **logs}))):
            partial = self._folder / "partial"
            partial.write_bytes(content)
            partial.replace(self._folder / name)

    def _packed(self, files: dict[str, bytes]) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{self._title}/{name}")
                entry.size, entry.mtime = len(content), int(time.time())
                archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


def trimmed(log: Path) -> bytes:
    """Return a log, or where it is long its beginning and its end."""
    size = log.stat().st_size
    with log.open("rb") as file:
        if size <= HEAD + TAIL:
            return file.read()
        head = file.read(HEAD)
        file.seek(size - TAIL)
        return b"%s\n... %d bytes left out ...\n%s" % (head, size - HEAD - TAIL, file.read(TAIL))
