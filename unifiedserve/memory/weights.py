"""Model weights in shared memory: read once by the supervisor, mapped by every worker.

The memory's manifest is JSON: name → [dtype, shape, offset]. Offsets are multiples of 64 bytes. Tensors follow in
their source's order, except that projections of the same input lie back to back: a matrix product can take them as
one. So do the experts of a layer.
"""

import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ipc_buffers import ArenaError, Memory
from unifiedserve.device.base import Device
from unifiedserve.device.cpu import CPU
from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import Header, SafetensorsFiles, Tensors

ALIGNMENT = 64
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


def weights_bytes(tensors: Tensors, dtype: torch.dtype) -> int:
    """Return the bytes that `store_weights` will take, from the headers alone."""
    return _size(plan_weights(tensors, dtype))


def load_weights(model_dir: Path, memory_name: str, dtype: torch.dtype, place: str = "host") -> Memory:
    """Store the tensors of a checkpoint's files as `store_weights` does.

    Raises ConfigError, too, if there are no safetensors files, or one is missing or corrupt.
    """
    return store_weights(SafetensorsFiles(model_dir), memory_name, dtype, place)


def store_weights(tensors: Tensors, memory_name: str, dtype: torch.dtype, place: str) -> Memory:
    """Copy all tensors into a new memory at a place, floating ones converted to `dtype`.

    Peak memory is that and two tensors. Raises ConfigError if the place has no room for them.
    """
    memory = _create(memory_name, plan_weights(tensors, dtype), place)
    try:
        write_weights(memory, tensors)
    except BaseException:
        memory.close()
        memory.unlink()
        raise
    return memory


def write_weights(memory: Memory, tensors: Tensors) -> None:
    """Copy all tensors into a memory that `store_weights` has made for them."""
    entries = _entries(memory)
    for name, tensor in tensors.read():
        entry = entries[name]
        stored = tensor.to(getattr(torch, entry.dtype)).contiguous()
        memory.write(entry.offset, stored.flatten().view(torch.uint8).numpy().data)


def sum_weights(name: str, device: Device) -> int:
    """Return a sum over all bytes of a memory that `store_weights` has made: another one tells of damage."""
    data = device.view(Memory.attach(name))
    words = data[: len(data) // 8 * 8].view(torch.int64).sum()  # of integers, so that their order is of no matter
    return int(words + data[len(data) // 8 * 8 :].sum())


def attach_weights(name: str, device: Device = CPU) -> dict[str, Tensor]:
    """Map the tensors of a memory made by `store_weights`; they keep it mapped, and must not be written."""
    memory = Memory.attach(name)
    data = device.view(memory)
    return {
        name: data[entry.offset : entry.end].view(getattr(torch, entry.dtype)).view(entry.shape)
        for name, entry in _entries(memory).items()
    }


def plan_weights(tensors: Tensors, dtype: torch.dtype) -> Manifest:
    """Give each tensor its place in a memory; floating ones will be of `dtype`, but those that are `exact`."""
    manifest: Manifest = {}
    offset = 0
    for header in _arranged(tensors.headers()):
        converted = header.dtype.is_floating_point and not header.exact
        entry = Entry(_name(dtype if converted else header.dtype), header.shape, offset)
        manifest[header.name] = entry
        offset = -(-entry.end // ALIGNMENT) * ALIGNMENT
    return manifest


def _entries(memory: Memory) -> Manifest:
    return {name: Entry(*entry) for name, entry in json.loads(memory.manifest).items()}


def _arranged(headers: list[Header]) -> list[Header]:
    """Order the tensors, each group of TOGETHER where its first one is."""
    first: dict[str, int] = {}
    keys = []
    for position, header in enumerate(headers):
        group, rank = _group(header.name)
        keys.append((first.setdefault(group, position), rank))
    return [header for _, header in sorted(zip(keys, headers, strict=True), key=lambda pair: pair[0])]


def _group(name: str) -> tuple[str, int]:
    """Return the group of a tensor (its own name if it has none) and its place there."""
    if expert := EXPERT.fullmatch(name):
        experts, number, projection = expert.groups()
        return f"{experts}.{'down' if projection == 'down' else 'gate_up'}", 2 * int(number) + (projection == "up")
    for names in TOGETHER:
        for rank, member in enumerate(names):
            if re.search(rf"\.{member}\.(weight(\.\w+)?|bias)$", name):
                return name.replace(member, names[0]), rank
    return name, 0


def _size(manifest: Manifest) -> int:
    return max(entry.end for entry in manifest.values())


def _create(name: str, manifest: Manifest, place: str) -> Memory:
    size = _size(manifest)
    try:
        return Memory.create(name, size, place, json.dumps(manifest).encode())
    except ArenaError as error:
        raise ConfigError(f"the weights need {size / 2**20:,.0f} MiB of shared memory: {error}") from error


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
