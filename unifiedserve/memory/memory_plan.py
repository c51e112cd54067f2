"""Plan memories for weights, and sum up what they hold."""

from typing import NamedTuple

import numpy as np

from ipc_buffers import ArenaError, Memory
from unifiedserve.errors import ConfigError


class MemoryPlan(NamedTuple):
    """Describe a memory for weights: its name, bytes and place, and its manifest as JSON."""

    name: str
    size: int
    place: str
    manifest: bytes

    def create(self) -> Memory:
        """Take the memory. Raises ConfigError if the place has no room for it."""
        try:
            return Memory.create(self.name, self.size, self.place, self.manifest)
        except ArenaError as error:
            raise ConfigError(f"the weights need {self.size / 2**20:,.0f} MiB of shared memory: {error}") from error


def sum_in_host(weights: Memory) -> int:
    """Return a sum over all bytes of weights in host memory, modulo 2**64: another one tells of damage.

    Takes as long as it takes to read them, mostly without the GIL.
    """
    return sum_of(np.from_dlpack(weights))


def sum_of(data: np.ndarray) -> int:
    """Return a sum over uint8 [n], modulo 2**64.

    It is that of sums over consecutive parts, if all but the last are multiples of 8 bytes.
    """
    words = data[: len(data) // 8 * 8].view(np.uint64)
    return (int(np.add.reduce(words)) + int(data[len(data) // 8 * 8 :].sum())) % 2**64
