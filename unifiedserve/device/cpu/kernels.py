"""Compute a language model's and an encoder's steps by kernels in C++."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device.base import Decoder, DividedEnds, Exchange, StepRunner
from unifiedserve.device.cpu.attention import CpuAttention
from unifiedserve.device.cpu.decoder import FusedDecoder
from unifiedserve.device.cpu.dtypes import KERNEL_DTYPES
from unifiedserve.device.cpu.head import Head
from unifiedserve.device.cpu.modules import fill_panels
from unifiedserve.device.cpu.vision import CpuVision
from unifiedserve.device.llama import fits


class CpuKernels:
    """Compute by kernels in C++, for float32 and bfloat16."""

    vision = CpuVision()

    def attention(self, batch: RaggedBatch, kv: PagedKV) -> CpuAttention:
        """Plan a step's attention."""
        return CpuAttention(batch, kv)

    def runner(self, language_model: Any, dtype: torch.dtype, exchange: Exchange | None = None) -> StepRunner | None:
        """Return what runs a llama-like model's layers; None for another."""
        known = fits(language_model, dtype, KERNEL_DTYPES) and fill_panels(language_model, dtype)
        return FusedDecoder(language_model, dtype, exchange.native if exchange else None) if known else None

    def head(self, module: Any) -> Callable[[Tensor], Tensor]:
        """Return what makes float32 logits."""
        return Head(module)

    def decoder(
        self, model: Any, kv: PagedKV, rows: int, tokens: int, position_rows: int, divided: DividedEnds | None = None
    ) -> Decoder | None:
        """Return None: the layers are told of a step by one call as it is."""
        return None
