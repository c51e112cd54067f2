"""Model weights in shared memory: read once by the supervisor, mapped by every worker.

The memory's manifest is JSON: name → [dtype, shape, offset, row]. Offsets are multiples of 64 bytes. Tensors follow in
their source's order, except that projections of the same input lie back to back: a matrix product can take them as
one. So do the experts of a layer. Rows of some matrices lie a little apart, with zeros between, where GPUs would
multiply slowly otherwise: Qwen2.5-VL's tower has an inner width of 3420.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ipc_buffers import Memory
from unifiedserve.device import CPU, Device
from unifiedserve.memory.memory_plan import MemoryPlan
from unifiedserve.memory.number_types import name_of
from unifiedserve.memory.tensors import Header, SafetensorsFiles, Tensors

ALIGNMENT = 64
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
#: bytes that rows of SPACED matrices are multiples of
ROW_ALIGNMENT = 16
SPACED = re.compile(r"(^|\.)visual\.blocks\.\d+\.mlp\.down_proj\.weight$")
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


class Entry(NamedTuple):
    """Place a tensor in the memory. `dtype` is torch's name, `row` the elements that a spaced matrix's row takes."""

    dtype: str
    shape: list[int]
    offset: int
    row: int | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def gap(self) -> int:
        """Return how many elements lie between rows."""
        return 0 if self.row is None else self.row - self.shape[-1]

    @property
    def stored_shape(self) -> list[int]:
        """Return the shape with what is between rows."""
        return self.shape if self.row is None else [*self.shape[:-1], self.row]

    @property
    def end(self) -> int:
        itemsize: int = getattr(torch, self.dtype).itemsize
        return self.offset + math.prod(self.stored_shape) * itemsize


Manifest = dict[str, Entry]
Wanted = Callable[[str], bool]


def all_tensors(name: str) -> bool:
    """Want a tensor, whichever it is."""
    return True


def weights_bytes(tensors: Tensors, dtype: torch.dtype, wanted: Wanted = all_tensors) -> int:
    """Return the bytes that `create_weights` will take, from the headers alone."""
    return _size(plan_weights(tensors, dtype, wanted))


def load_weights(model_dir: Path, memory_name: str, dtype: torch.dtype, place: str = "host") -> Memory:
    """Store the tensors of a checkpoint's files as `store_weights` does.

    Raises ConfigError, too, if there are no safetensors files, or one is missing or corrupt.
    """
    return store_weights(SafetensorsFiles(model_dir), memory_name, dtype, place)


def store_weights(tensors: Tensors, memory_name: str, dtype: torch.dtype, place: str) -> Memory:
    """Copy all tensors into a new memory at a place, floating ones converted to `dtype`.

    Peak memory is that and two tensors. Raises ConfigError if the place has no room for them.
    """
    memory = create_weights(tensors, memory_name, dtype, place)
    try:
        write_weights([memory], tensors)
    except BaseException:
        memory.close()
        memory.unlink()
        raise
    return memory


def create_weights(
    tensors: Tensors, memory_name: str, dtype: torch.dtype, place: str, wanted: Wanted = all_tensors
) -> Memory:
    """Take memory at a place for the tensors that are `wanted` by name. Raises ConfigError as `store_weights` does."""
    return plan_memory(tensors, memory_name, dtype, place, wanted).create()


def plan_memory(
    tensors: Tensors, memory_name: str, dtype: torch.dtype, place: str, wanted: Wanted = all_tensors
) -> MemoryPlan:
    """Return what memory the tensors need that are `wanted` by name, from the headers alone."""
    manifest = plan_weights(tensors, dtype, wanted)
    return MemoryPlan(memory_name, _size(manifest), place, json.dumps(manifest).encode())


def write_weights(memories: Sequence[Memory], tensors: Tensors) -> None:
    """Read all tensors once, and copy each into the memories for it. `create_weights` has made these."""
    made = [(memory, _entries(memory)) for memory in memories]
    for name, tensor in tensors.read():
        for memory, entries in made:
            if entry := entries.get(name):
                stored = tensor.to(getattr(torch, entry.dtype)).contiguous()
                stored = pad(stored, (0, entry.gap)) if entry.gap else stored
                memory.write(entry.offset, stored.flatten().view(torch.uint8).numpy().data)


def sum_weights(name: str, device: Device) -> int:
    """Return a sum over all bytes of a memory that `store_weights` has made: another one tells of damage."""
    data = device.view(Memory.attach(name))
    words = data[: len(data) // 8 * 8].view(torch.int64).sum()  # of integers, so that their order is of no matter
    return int(words + data[len(data) // 8 * 8 :].sum())


def attach_weights(name: str, device: Device = CPU) -> dict[str, Tensor]:
    """Map the tensors of a memory made by `store_weights`; they keep it mapped.

    They must not be written: in host memory that ends the process, before it can do harm to others.
    """
    memory = Memory.attach(name)
    if memory.place == "host":
        memory.protect()
    data = device.view(memory)
    return {name: _view(data, entry) for name, entry in _entries(memory).items()}


def plan_weights(tensors: Tensors, dtype: torch.dtype, wanted: Wanted = all_tensors) -> Manifest:
    """Give each `wanted` tensor its place in a memory; floating ones will be of `dtype`, but those that are `exact`."""
    manifest: Manifest = {}
    offset = 0
    for header in _arranged([header for header in tensors.headers() if wanted(header.name)]):
        converted = header.dtype.is_floating_point and not header.exact
        stored = dtype if converted else header.dtype
        entry = Entry(name_of(stored), header.shape, offset, _row(header, stored))
        manifest[header.name] = entry
        offset = -(-entry.end // ALIGNMENT) * ALIGNMENT
    return manifest


def _view(data: Tensor, entry: Entry) -> Tensor:
    stored = data[entry.offset : entry.end].view(getattr(torch, entry.dtype)).view(entry.stored_shape)
    return stored[..., : entry.shape[-1]] if entry.gap else stored


def _row(header: Header, dtype: torch.dtype) -> int | None:
    """Return how many elements a row of a SPACED matrix takes."""
    if len(header.shape) != 2 or not SPACED.search(header.name):
        return None
    values = ROW_ALIGNMENT // dtype.itemsize
    return -(-header.shape[1] // values) * values


def _entries(memory: Memory) -> Manifest:
    return {name: Entry(*entry) for name, entry in json.loads(memory.manifest).items()}


def _arranged(headers: list[Header]) -> list[Header]:
    """Order the tensors, each group of TOGETHER where its first one is."""
    first: dict[str, int] = {}
    keys = []
    for position, header in enumerate(headers):
        group, rank = neighbours(header.name)
        keys.append((first.setdefault(group, position), rank))
    return [header for _, header in sorted(zip(keys, headers, strict=True), key=lambda pair: pair[0])]


def neighbours(name: str) -> tuple[str, int]:
    """Return the group of a tensor that lie back to back (its own name if it has none) and its place there."""
    if expert := EXPERT.fullmatch(name):
        experts, number, projection = expert.groups()
        return f"{experts}.{'down' if projection == 'down' else 'gate_up'}", 2 * int(number) + (projection == "up")
    for names in TOGETHER:
        for rank, member in enumerate(names):
            if re.search(rf"\.{member}\.(weight(\.\w+)?|bias)$", name):
                return name.replace(member, names[0]), rank
    return name, 0


def _size(manifest: Manifest) -> int:
    return max((entry.end for entry in manifest.values()), default=ALIGNMENT)  # no memory is empty
