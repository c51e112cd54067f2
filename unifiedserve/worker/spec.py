"""Specify a worker process when it starts."""

import msgspec

from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.memory.shared import EngineLayout, MemoryLayout
from unifiedserve.messages.media import MediaPlan
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.profiles import HardwareProfile


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specify all that a worker needs to attach and begin.

    `number` tags the pages it takes. `weights_sum` is what the weights in a device's own memory must add up to, and
    `decode_step` are the seconds of a lone step of decode, once they are known. `share` is what heavy work gets of its
    budgets beside streams until there are measurements. `nursery` is the descriptor of the socket over which it gets
    reading processes (None: it reads media itself). The sizes of steps are tried out with a `medium` like this (None:
    the model takes none), unless a `profile` tells. Ranks after the first one add these variables to their environments
    (empty: nothing). Holders of the `carrier_token` may read the pages of other
    memories.
    """

    config: EngineConfig
    placement: Placement
    instance: Instance
    number: int
    layout: EngineLayout
    device: DeviceName
    model_dir: str
    dtype: str
    patch_row_bytes: int
    visual_dim: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    weights_sum: int | None = None
    decode_step: float | None = None
    share: float = 1.0
    medium: MediaPlan | None = None
    profile: HardwareProfile | None = None
    environments_of_ranks: tuple[dict[str, str], ...] = ()
    nursery: int | None = None
    carrier_token: str = ""

    @property
    def memory(self) -> MemoryLayout:
        """Return the layout of the memory that the instance's pages are in."""
        return self.layout.memories[self.instance.memory]

    @property
    def ranks(self) -> int:
        """Return how many processes the instance is."""
        return self.config.machine.ranks_of(self.instance)

    @property
    def attached(self) -> set[str]:
        """Return the memories that the instance works with.

        They are its own and, where it hosts vision, those of all encoders.
        """
        encoders = {name for name, memory in self.layout.memories.items() if memory.patch.pages}
        return {self.instance.memory} | (encoders if Stage.VISION in self.instance.stages else set())
