"""How workers share a GPU without MPS: its scheduler gives them turns."""

import os

import torch

from unifiedserve.config import Instance


class TimeSlices:
    """No worker rests for others: steps are short, and budgets follow what they take."""

    rests = False

    def enter(self, instance: Instance, threads: int) -> None:
        torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
        torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32, or tokens are not the processor's
        torch.backends.cudnn.allow_tf32 = False

    def give_way(self, giving: bool) -> None:
        """Do nothing: there is no part of a GPU to leave."""
