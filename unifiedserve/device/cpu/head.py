"""Logits from hidden states, by the kernels where they know the dtype."""

from typing import Any

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.device.cpu.processor import KERNEL_DTYPES, thread_pool


class Head:
    """A language model's head; `module` is transformers' own."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._native = _core.Weight(module.weight, module.bias) if module.weight.dtype in KERNEL_DTYPES else None
        self._logits = torch.empty(0, len(module.weight))

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return float32 [k, vocab] of [k, hidden], valid until the next call."""
        if self._native is None:
            scores: Tensor = self._module(hidden)
            return scores.float()
        hidden = hidden.contiguous()
        if len(self._logits) < len(hidden):  # fresh memory at every step would cost a page fault for each 4 KiB
            self._logits = torch.empty(len(hidden), len(self._module.weight))
        logits = self._logits[: len(hidden)]
        _core.linear(thread_pool(), hidden, self._native, logits)
        return logits
