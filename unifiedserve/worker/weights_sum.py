"""Add up the weights of a worker in a device's own memory: another sum tells of damage."""

import torch

from unifiedserve.device import Device
from unifiedserve.memory.weights import sum_weights
from unifiedserve.ranks.group import Group
from unifiedserve.worker.spec import WorkerSpec


def sum_of_ranks(spec: WorkerSpec, device: Device, group: Group | None) -> int:
    """Return the sum over all ranks, modulo 2**64; all of them call this at once."""
    rank = group.part.rank if group else 0
    own = sum_weights(spec.memory.weights_of_ranks[rank], device)
    if group is None:
        return own
    total = device.upload(torch.tensor([own]))
    group.exchange.all_reduce(total)
    return int(total)
