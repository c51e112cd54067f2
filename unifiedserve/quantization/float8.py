"""Read FP8 (e4m3) weights with scales. Kernels take none, so they become plain ones.

weight: float8 [N, K]; its scale: one number, one an output ([N] or [N, 1]), or one a block ([blocks, blocks]), of which
the last ones may be smaller.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.stored import FLOATS, Axes, Axis, Module, StoredWeight, group_axis

_BLOCK = (128, 128)


class FP8:
    """Read the weights of a checkpoint with the quant_method "fp8"."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError if the size of a block is none."""
        self._block = block_of(config.get("weight_block_size"))

    def weight(self, module: Module) -> StoredWeight | None:
        scale = "weight_scale" if "weight_scale" in module.tensors else "weight_scale_inv"
        quantized = is_float8(module) or scale in module.tensors
        return float8_weight(module, scale, self._block) if quantized else None


def is_float8(module: Module) -> bool:
    """Tell whether a module's weight is of float8, so that it needs scales."""
    return "weight" in module.tensors and module.tensors["weight"].dtype == torch.float8_e4m3fn


def block_of(size: Any) -> tuple[int, int]:
    """Return the outputs and inputs of a block; raises ConfigError for what is no size of one."""
    match size or _BLOCK:
        case [int(rows), int(columns)] if min(rows, columns) > 0:
            return rows, columns
    raise ConfigError(f"quantization_config: blocks of {size!r} are not supported; expected [outputs, inputs]")


def float8_weight(module: Module, scale: str, block: tuple[int, int]) -> StoredWeight:
    """Return a module's weight [N, K] of float8 as float32; raises ConfigError for a scale that does not fit."""
    outputs, inputs = module.tensor("weight", (torch.float8_e4m3fn,)).shape
    rows, columns = block
    blocks = [-(-outputs // rows), -(-inputs // columns)]
    shape = module.tensor(scale, FLOATS, [], [1], [outputs], [outputs, 1], blocks).shape
    if shape != blocks:
        rows, columns = (outputs if shape in ([], [1]) else 1), inputs
    header = module.weight(torch.float32, [outputs, inputs])
    scales = Axes(group_axis(0, rows, outputs), group_axis(1, columns, inputs))
    return StoredWeight(
        header, {"weight": Axes(Axis(0), Axis(1)), scale: scales}, partial(_decode, scale, rows, columns)
    )


def _decode(scale: str, rows: int, columns: int, parts: Mapping[str, Tensor]) -> Tensor:
    """Multiply each block of rows and columns with its scale."""
    weight = parts["weight"].float()
    blocks = parts[scale].float()
    blocks = blocks.view(-1, 1) if blocks.dim() < 2 else blocks
    for column, factors in enumerate(blocks.T):
        strip = weight[:, column * columns : (column + 1) * columns]
        strip.mul_(factors.repeat_interleave(rows)[: len(weight), None])
    return weight
