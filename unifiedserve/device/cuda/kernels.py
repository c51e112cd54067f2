"""Compute a GPU's kernels from operators."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device.base import Decoder, Device, DividedEnds, Exchange, SideStream, StepRunner
from unifiedserve.device.cuda.attention import CudaAttention
from unifiedserve.device.cuda.decode_graphs import DecodeGraphs, WholeEnds
from unifiedserve.device.cuda.decoder import CudaDecoder
from unifiedserve.device.cuda.support import DTYPES
from unifiedserve.device.cuda.vision import CudaVision
from unifiedserve.device.llama import fits
from unifiedserve.device.operators import Attention, Multiply, Pointwise
from unifiedserve.errors import ConfigError

_DTYPES = frozenset(getattr(torch, name) for name in DTYPES)

_log = logging.getLogger(__name__)


class CudaKernels:
    """Compute `Kernels` of a device, over its libraries."""

    def __init__(
        self,
        device: Device,
        attention: Attention,
        pointwise: Pointwise,
        multiply: Multiply,
        side_stream: Callable[[], SideStream],
        *,
        batch_invariant: bool = False,
    ) -> None:
        """Compute with these operators; if they are to be `batch_invariant`, refuse models with other ones."""
        self._device, self._attention, self._pointwise, self._multiply = device, attention, pointwise, multiply
        self._side_stream, self._batch_invariant = side_stream, batch_invariant
        self.vision = CudaVision(pointwise, multiply)

    def attention(self, batch: RaggedBatch, kv: PagedKV) -> CudaAttention:
        """Plan a step's attention."""
        return CudaAttention(batch, kv, self._device, self._attention)

    def runner(self, language_model: Any, dtype: torch.dtype, exchange: Exchange | None = None) -> StepRunner | None:
        """Return what runs a llama-like model's layers, or a rank's part of them; None for another.

        Raises ConfigError for another one if products are to be the same for any number of rows.
        """
        if fits(language_model, dtype, _DTYPES):
            kernels = self._attention, self._pointwise, self._multiply
            return CudaDecoder(language_model, self._device, *kernels, exchange)
        if self._batch_invariant:
            raise ConfigError(
                f"--batch-invariant: transformers runs this {language_model.config.model_type}, with products whose "
                "bits depend on their batch; leave it out, or serve a llama-like model (docs/models.md, In any company)"
            )
        return None

    def head(self, module: Any) -> Callable[[Tensor], Tensor]:
        """Return what makes float32 logits."""
        return lambda hidden: self._multiply(hidden, module.weight, module.bias).float()

    def decoder(
        self, model: Any, kv: PagedKV, rows: int, tokens: int, position_rows: int, divided: DividedEnds | None = None
    ) -> Decoder | None:
        """Return what decodes a llama-like model by graphs; None for another, or where there is no memory for it.

        A rank cannot do without alone: then it raises RuntimeError.
        """
        text = model.get_decoder()
        layers = self.runner(text, kv.pages.dtype, divided.exchange if divided else None)
        if not isinstance(layers, CudaDecoder):
            return None
        shape = {"rows": rows, "tokens": tokens, "position_rows": position_rows}
        ends = divided or WholeEnds(model, self._multiply)
        try:
            return DecodeGraphs(ends, layers, self._attention, kv, self._side_stream(), self._device, **shape)
        except RuntimeError as error:
            if divided:
                raise
            _log.warning("decoding without CUDA graphs: %s", error)
            return None
