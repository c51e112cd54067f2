"""Compute logits from hidden states, by the kernels where they know the dtype."""

from typing import Any

import torch
from torch import Tensor

from unifiedserve.device.cpu.modules import PanelLinear, in_panels


class Head:
    """Run a language model's head. `module` is transformers' own, or its replacement."""

    def __init__(self, module: Any) -> None:
        self._module = in_panels(module)
        self._logits = torch.empty(0, module.out_features)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return float32 [k, vocab] of [k, hidden], valid until the next call."""
        if not isinstance(self._module, PanelLinear):
            scores: Tensor = self._module(hidden)
            return scores.float()
        if len(self._logits) < len(hidden):  # fresh memory at every step would cost a page fault for each 4 KiB
            self._logits = torch.empty(len(hidden), self._module.out_features)
        return self._module.floats(hidden, self._logits[: len(hidden)])
