"""Provide TorchCodec's samplers.

The random ones draw from torch's generator: torch.manual_seed gives TorchCodec's clips.
"""

from functools import partial, update_wrapper

import numpy as np
import numpy.typing as npt
import torch

from flashcodec import samplers
from flashcodec.samplers import clips_at_regular_indices, clips_at_regular_timestamps

__all__ = [
    "clips_at_random_indices",
    "clips_at_random_timestamps",
    "clips_at_regular_indices",
    "clips_at_regular_timestamps",
]


class _TorchRandom:
    """Use torch's default generator as `flashcodec.samplers` use one."""

    def integers(self, low: int, high: int, size: int) -> npt.NDArray[np.int64]:
        return np.asarray(torch.randint(low=low, high=high, size=(size,)))

    def random(self, size: int) -> npt.NDArray[np.float64]:
        return np.asarray(torch.rand(size, dtype=torch.float64))


clips_at_random_indices = partial(samplers.clips_at_random_indices, rng=_TorchRandom())
clips_at_random_timestamps = partial(samplers.clips_at_random_timestamps, rng=_TorchRandom())
update_wrapper(clips_at_random_indices, samplers.clips_at_random_indices)
update_wrapper(clips_at_random_timestamps, samplers.clips_at_random_timestamps)
