"""What a GPU computes, made of operators."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device.base import Device, StepRunner
from unifiedserve.device.cuda.attention import CudaAttention
from unifiedserve.device.cuda.decoder import CudaDecoder
from unifiedserve.device.cuda.operators import Attention, Pointwise
from unifiedserve.device.cuda.vision import CudaVision
from unifiedserve.device.llama import fits

#: what the pointwise kernels know
DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})


class CudaKernels:
    """`Kernels` of a device, over its libraries."""

    def __init__(self, device: Device, attention: Attention, pointwise: Pointwise) -> None:
        self._device, self._attention, self._pointwise = device, attention, pointwise
        self.vision = CudaVision()

    def attention(self, batch: RaggedBatch, kv: PagedKV) -> CudaAttention:
        """Plan a step's attention."""
        return CudaAttention(batch, kv, self._device, self._attention)

    def runner(self, language_model: Any, dtype: torch.dtype) -> StepRunner | None:
        """Return what runs a llama-like model's layers; None for another."""
        if not fits(language_model, dtype, DTYPES):
            return None
        return CudaDecoder(language_model, self._device, self._attention, self._pointwise)

    def head(self, module: Any) -> Callable[[Tensor], Tensor]:
        """Return what makes float32 logits."""
        return lambda hidden: linear(hidden, module.weight, module.bias).float()
