"""Share the cores between workers: by priority, and decode with half of them while others have work."""

from __future__ import annotations

import os
from collections.abc import Collection

import torch

from unifiedserve.device.cpu.processor import thread_pool
from unifiedserve.placement import Instance


class NiceSharing:
    """Let decoding go first (see `Instance.nice`). It leaves the cores again between its steps."""

    rests = True
    apart = True

    def start(self) -> None:
        """Do nothing: the kernel is there."""

    def environment(self, instance: Instance, place: str) -> dict[str, str]:
        """Return nothing."""
        return {}

    def terminate(self, pids: Collection[int]) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def enter(self, instance: Instance, threads: int) -> None:
        os.nice(instance.nice)
        torch.set_num_threads(threads or len(os.sched_getaffinity(0)))

    def give_way(self, giving: bool) -> None:
        """Leave half of the cores to other processes from now on, or use all.

        For decode, which waits for memory more than for cores: half of them do it in much less than twice the time.
        """
        threads = torch.get_num_threads()
        thread_pool().use(threads // 2 if giving else threads)
