"""Model weights in shared memory: read once by the supervisor, mapped by every worker.

The memory's manifest is JSON: name → [dtype, shape, offset]. Offsets are multiples of 64 bytes. Tensors follow in the
files' order, except that projections of the same input lie back to back: a matrix product can take them as one. So
do the experts of a layer.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ipc_buffers import ArenaError, Memory
from unifiedserve.device.base import Device
from unifiedserve.device.cpu import CPU
from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import weight_files

ALIGNMENT = 64
FLOATS = {"F64", "F32", "F16", "BF16"}
INTEGERS = {"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


class Entry(NamedTuple):
    """A tensor's place in the memory; `dtype` is torch's name."""

    dtype: str
    shape: list[int]
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        itemsize: int = getattr(torch, self.dtype).itemsize
        return self.offset + self.elements * itemsize


Manifest = dict[str, Entry]


def weights_bytes(model_dir: Path, dtype: torch.dtype) -> int:
    """Return the bytes that `load_weights` will take, from the files' headers alone; raises as it does."""
    return max(entry.end for entry in _plan(weight_files(model_dir), dtype).values())


def load_weights(model_dir: Path, memory_name: str, dtype: torch.dtype, place: str = "host") -> Memory:
    """Copy all tensors of a checkpoint into a new memory at a place, floating ones converted to `dtype`.

    Peak memory is that and two tensors. Raises ConfigError if there are no safetensors files, one is missing or
    corrupt, or the place has no room for them.
    """
    files = weight_files(model_dir)
    manifest = _plan(files, dtype)
    memory = _create(memory_name, manifest, place)
    try:
        for name, tensor in _read(files):
            entry = manifest[name]
            stored = tensor.to(getattr(torch, entry.dtype)).contiguous()
            memory.write(entry.offset, stored.flatten().view(torch.uint8).numpy().data)
    except BaseException:
        memory.close()
        memory.unlink()
        raise
    return memory


def attach_weights(name: str, device: Device = CPU) -> dict[str, Tensor]:
    """Map the tensors of a memory made by `load_weights`; they keep it mapped, and must not be written."""
    memory = Memory.attach(name)
    data = device.view(memory)
    entries = {key: Entry(*entry) for key, entry in json.loads(memory.manifest).items()}
    return {
        name: data[entry.offset : entry.end].view(getattr(torch, entry.dtype)).view(entry.shape)
        for name, entry in entries.items()
    }


def _plan(files: list[Path], dtype: torch.dtype) -> Manifest:
    manifest: Manifest = {}
    offset = 0
    for path, name, stored, shape in _arranged(list(_headers(files))):
        if stored not in FLOATS and stored not in INTEGERS:
            raise ConfigError(f"{path}: tensor {name} is stored as {stored}, which is not supported")
        entry = Entry(_name(dtype) if stored in FLOATS else INTEGERS[stored], shape, offset)
        manifest[name] = entry
        offset = -(-entry.end // ALIGNMENT) * ALIGNMENT
    if offset == 0:
        raise ConfigError(f"{files[0].parent}: the safetensors files hold no tensors")
    return manifest


Header = tuple[Path, str, str, list[int]]


def _arranged(headers: list[Header]) -> list[Header]:
    """Order the tensors, each group of TOGETHER where its first one is."""
    first: dict[str, int] = {}
    keys = []
    for position, (_, name, _, _) in enumerate(headers):
        group, rank = _group(name)
        keys.append((first.setdefault(group, position), rank))
    return [header for _, header in sorted(zip(keys, headers, strict=True), key=lambda pair: pair[0])]


def _group(name: str) -> tuple[str, int]:
    """Return the group of a tensor (its own name if it has none) and its place there."""
    if expert := EXPERT.fullmatch(name):
        experts, number, projection = expert.groups()
        return f"{experts}.{'down' if projection == 'down' else 'gate_up'}", 2 * int(number) + (projection == "up")
    for names in TOGETHER:
        for rank, member in enumerate(names):
            if re.search(rf"\.{member}\.(weight|bias)$", name):
                return name.replace(member, names[0]), rank
    return name, 0


def _headers(files: list[Path]) -> Iterator[Header]:
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.offset_keys():
                    tensor = file.get_slice(name)
                    yield path, name, tensor.get_dtype(), tensor.get_shape()
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{path}: not a readable safetensors file: {error}") from error


def _read(files: list[Path]) -> Iterator[tuple[str, Tensor]]:
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in file.offset_keys():
                yield name, file.get_tensor(name)


def _create(name: str, manifest: Manifest, place: str) -> Memory:
    size = max(entry.end for entry in manifest.values())
    try:
        return Memory.create(name, size, place, json.dumps(manifest).encode())
    except ArenaError as error:
        raise ConfigError(f"the weights need {size / 2**20:,.0f} MiB of shared memory: {error}") from error


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
