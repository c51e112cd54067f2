"""Keep weights on disk as they lie in memory; the next start maps them.

A file is in the safetensors format: one tensor of bytes, and as metadata what it was made from, its bytes' sum and its
manifest. So the next start need not know how the bytes are made, nor import what makes them.
The tensor begins at a page of memory.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

import unifiedserve
from ipc_buffers import ArenaError, Memory
from unifiedserve import _core
from unifiedserve.memory.memory_plan import MemoryPlan, sum_of

_log = logging.getLogger(__name__)
_TENSOR = "memory"
_RESERVE = 2 << 30  # bytes that stay free on the disk
_CHUNK = 16 << 20
_PIECE = 2 << 20  # of a memory, for one core
_PAGE = 4096
_LENGTH = 8  # bytes of the header's length, before it
_DIGITS = 16
_PACKAGE = Path(unifiedserve.__file__).parent
#: what decides which bytes are made: the kernels' library, and the code that chooses, packs and quantises tensors
_MAKERS = ("quantization", "memory", "device", "engine", "models", "ranks")


class Origin(NamedTuple):
    """Name the sources of weights in memory: the checkpoint's files, and `how` in words."""

    files: Sequence[Path]
    how: str

    def name(self) -> str:
        """Return a name that stays when the files, this program or the processor change."""
        return _digest(self.how, *map(str, self.files))

    def state(self) -> str:
        """Return a digest of all that decides what the bytes are. Raises OSError if a file is not there."""
        states = [path.stat() for path in self.files]
        seen = [f"{state.st_size} {state.st_mtime_ns} {state.st_ino}" for state in states]
        return _digest(self.name(), *seen, *_core.instruction_sets(), version("transformers"), _digest_of_code())


class KeptWeights:
    """Keep files in one folder, each for one memory of one checkpoint; none without room or right to write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closed = threading.Event()

    def close(self) -> None:
        """End what is being written; nothing is left of it."""
        self._closed.set()

    def plan(self, name: str, place: str, origin: Origin) -> MemoryPlan | None:
        """Return what a memory of that name needs to hold a file's bytes; None without a right file.

        The log says what is wrong with the file.
        """
        path = self._path(origin)
        if not path.exists():
            return None
        try:
            metadata = _metadata(path)
            if metadata.get("state") != origin.state():
                raise ValueError("the checkpoint, the program or the processor is another")
            if metadata.get("seal") != _seal(metadata):
                raise ValueError("it is damaged")
            size = path.stat().st_size - _data_start(path)
            return MemoryPlan(name, size, place, metadata["manifest"].encode())
        except (OSError, SafetensorError, ValueError) as error:
            _discard(path, error)
            return None

    def map(self, plan: MemoryPlan, origin: Origin) -> Memory | None:
        """Return host memory that shows a file's bytes as `plan` has told; None if it is damaged.

        Nobody can write to it. The log says what is wrong with the file.
        """
        path = self._path(origin)
        try:
            return _map(plan, path)
        except ArenaError as error:
            _log.warning("the weights kept in %s cannot be mapped, and are made again: %s", path, error)
        except (OSError, SafetensorError, ValueError) as error:
            _discard(path, error)
        return None

    def keep(self, memory: Memory, total: int, origin: Origin) -> None:
        """Write a memory to its file, unless that is there already.

        `total` is the sum of its bytes, as `sum_in_host` returns it.
        """
        path = self._path(origin)
        try:
            state = origin.state()
            if _made_from(path) != state:
                metadata = {"state": state, "sum": str(total), "manifest": memory.manifest.decode()}
                self._write(path, memory, metadata | {"seal": _seal(metadata)})
        except OSError as error:
            _log.warning("the weights are not kept in %s: %s", self._folder, error)

    def _path(self, origin: Origin) -> Path:
        return self._folder / f"{origin.name()}.safetensors"

    def _write(self, path: Path, memory: Memory, metadata: dict[str, str]) -> None:
        data = np.from_dlpack(memory).data
        self._folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(self._folder).free) < len(data) + _RESERVE:
            _log.warning("the weights are not kept in %s: %d MiB are free there", self._folder, free >> 20)
            return
        part = path.with_suffix(".part")
        with part.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another server writes the same
            file.truncate(0)  # what a killed one has left
            try:
                self._write_all(file, _header(len(data), metadata), *_pieces(data))
                part.rename(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise

    def _write_all(self, file: BinaryIO, *pieces: bytes | memoryview) -> None:
        for piece in pieces:
            if self._closed.is_set():
                raise InterruptedError("the server ended before")
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def copy_all(source: Memory, target: Memory) -> None:
    """Copy a host memory into another of its size, and give the source up."""
    data = np.from_dlpack(source).data

    def copy(start: int) -> None:
        target.write(start, data[start : start + _PIECE])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(copy, range(0, len(data), _PIECE)))
    source.close()
    source.unlink()


def _seal(metadata: Mapping[str, str]) -> str:
    """Return a digest over what a file says of itself."""
    return _digest(*(metadata.get(name, "") for name in ("state", "sum", "manifest")))


def _discard(path: Path, error: Exception) -> None:
    """Remove a file that is no use."""
    _log.warning("the weights kept in %s are made again: %s", path, error)
    with suppress(OSError):
        path.unlink()


def _map(plan: MemoryPlan, path: Path) -> Memory:
    """Return memory of a file's bytes. Raises ValueError, OSError, SafetensorError or ArenaError for wrong ones."""
    total = _metadata(path).get("sum")
    memory = Memory.map_file(plan.name, str(path), _data_start(path), plan.size, plan.manifest)
    try:
        if str(_sum(memory)) != total:
            raise ValueError("it is damaged")
    except BaseException:
        memory.close()
        memory.unlink()
        raise
    return memory


def _sum(memory: Memory) -> int:
    """Return the sum of a host memory's bytes as `sum_of` does, on all cores."""
    data = np.from_dlpack(memory)
    pieces = (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return sum(threads.map(sum_of, pieces)) % 2**64


def _data_start(path: Path) -> int:
    with path.open("rb") as file:
        return _LENGTH + int.from_bytes(file.read(_LENGTH), "little")


def _made_from(path: Path) -> str | None:
    """Return the state that a file was made from; None if there is no readable one."""
    try:
        return _metadata(path).get("state")
    except (OSError, SafetensorError):
        return None


def _metadata(path: Path) -> dict[str, str]:
    """Return what a file says of itself. Raises OSError or SafetensorError if it cannot be read."""
    with safe_open(path, framework="np") as file:
        return file.metadata() or {}


def _header(size: int, metadata: dict[str, str]) -> bytes:
    """Return the beginning of a safetensors file of one tensor: https://huggingface.co/docs/safetensors#format."""
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    text = json.dumps({"__metadata__": metadata, _TENSOR: tensor}).encode()
    text += b" " * (-(_LENGTH + len(text)) % _PAGE)
    return len(text).to_bytes(_LENGTH, "little") + text


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))


@cache
def _digest_of_code() -> str:
    files = [Path(_core.__file__), *(path for each in _MAKERS for path in sorted((_PACKAGE / each).rglob("*.py")))]
    return _digest(*(hashlib.sha256(path.read_bytes()).hexdigest() for path in files))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]
