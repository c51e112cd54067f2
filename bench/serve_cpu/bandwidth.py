"""The bandwidth of the memory, which a decode step at batch 1 cannot beat: it reads every weight once."""

import json
import struct
import time
from pathlib import Path

import torch

BYTES = 1 << 29  # far beyond the caches
REPEATS = 12


def read_bandwidth() -> float:
    """Measure bytes a second with all cores, the best of several sums over half a gibibyte."""
    values = torch.ones(BYTES // 4, dtype=torch.int32)
    return max(timed_sum(values) for _ in range(REPEATS))


def timed_sum(values: torch.Tensor) -> float:
    start = time.perf_counter()
    values.amax()
    return values.nbytes / (time.perf_counter() - start)


def language_model_bytes(checkpoint: Path) -> int:
    """Return the bytes of the weights on disk without those of the vision tower."""
    with (checkpoint / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    ranges = [tensor["data_offsets"] for name, tensor in header.items() if not name.startswith("visual.")]
    return sum(stop - start for start, stop in ranges)
