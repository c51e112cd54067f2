"""Find the likeliest token of each row of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unifiedserve import _core
from unifiedserve.device.cpu.processor import thread_pool

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024  # logits, of which the highest is found first


def likeliest(logits: Tensor) -> Tensor:
    """Return the id of the highest logit of each row [B, vocab], int64 [B] on its device; of equal ones the lowest."""
    if logits.device.type != "cpu" or logits.dtype != torch.float32 or not logits.shape[1]:
        return _by_blocks(logits)
    found = torch.empty(len(logits), dtype=torch.int64)
    _core.likeliest(thread_pool(), logits.contiguous(), found)
    return found


def _by_blocks(logits: Tensor) -> Tensor:
    """Find it by the highest of each block. Torch finds a maximum sooner than where it is."""
    blocks = logits.shape[1] // _BLOCK
    if blocks < 2:
        return logits.argmax(dim=-1)
    cut = logits[:, : blocks * _BLOCK].reshape(len(logits), blocks, _BLOCK)
    block = cut.amax(dim=-1).argmax(dim=-1)
    highest = cut.gather(1, block[:, None, None].expand(-1, 1, _BLOCK))[:, 0]
    rest = logits[:, blocks * _BLOCK :]
    few = torch.cat((highest, rest), dim=1).argmax(dim=-1)
    return few + torch.where(few < _BLOCK, block * _BLOCK, (blocks - 1) * _BLOCK)
