"""Quantised checkpoints, packed element by element as their formats are defined."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.read import QuantizedTensors

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": False}
#: which of eight neighbouring outputs is in which four bits of AWQ's word
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def checkpoint(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> QuantizedTensors:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return QuantizedTensors(SafetensorsFiles(folder), config)


def read_all(source: QuantizedTensors) -> dict[str, Tensor | QuantizedMatrix]:
    """Read everything, and check that it is what the headers say."""
    headers = {header.name: header for header in source.headers()}
    values: dict[str, Tensor | QuantizedMatrix] = {}
    for name, value in source.read():
        assert name not in values
        values[name] = value
        check_value(headers[name].shape, headers[name].scheme, value)
    assert values.keys() == headers.keys()
    return values


def check_value(shape: list[int], scheme: Any, value: Tensor | QuantizedMatrix) -> None:
    """Check what kernels rely on."""
    if scheme is None:
        assert isinstance(value, Tensor)
        assert list(value.shape) == shape
        return
    assert isinstance(value, QuantizedMatrix)
    assert value.scheme == scheme
    assert scheme.group in (16, 32, 64, 128)
    groups = torch.Size([shape[0], shape[1] // scheme.group])
    assert (value.codes.dtype, list(value.codes.shape)) == (torch.uint8, shape)
    assert (value.scales.dtype, value.scales.shape) == (torch.float32, groups)
    assert (value.zeros.dtype, value.zeros.shape) == (torch.float32, groups)
    assert all(tensor.is_contiguous() for tensor in value[:3])
    assert int(value.codes.max()) < 2**scheme.bits
    assert bool(value.zeros.isfinite().all())
    if scheme.zero is not None:
        assert bool((value.zeros == scheme.zero).all())


def words(codes: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> np.ndarray:
    """Pack codes [rows, columns] along the columns: `order` tells which of a word's columns is in its lowest bits."""
    count = 32 // bits
    order = order or tuple(range(count))
    packed = np.zeros((codes.shape[0], codes.shape[1] // count), dtype=np.uint32)
    for row in range(packed.shape[0]):
        for word in range(packed.shape[1]):
            value = 0
            for place, column in enumerate(order):
                value |= int(codes[row, word * count + column]) << (place * bits)
            packed[row, word] = value
    return packed.view(np.int32)


class Drawn:
    """Codes, scales and zeros of a matrix [outputs, inputs], each input in the group `group_of` it."""

    def __init__(self, outputs: int, inputs: int, group: int, bits: int = 4, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.bits, self.outputs, self.inputs, self.group = bits, outputs, inputs, group
        self.codes = rng.integers(0, 2**bits, (outputs, inputs))
        self.zeros = rng.integers(0, 2**bits, (outputs, inputs // group))
        self.scales = rng.uniform(0.001, 0.1, (outputs, inputs // group)).astype(np.float16)
        self.group_of = np.arange(inputs) // group

    def symmetric(self) -> "Drawn":
        self.zeros[:] = 2 ** (self.bits - 1)
        return self

    def values(self) -> Tensor:
        """Return the matrix by its definition, in float64."""
        offsets = self.codes - self.zeros[:, self.group_of]
        return torch.from_numpy(offsets * self.scales.astype(np.float64)[:, self.group_of])

    def awq(self) -> dict[str, Tensor]:
        return {
            "qweight": torch.from_numpy(words(self.codes.T, 4, AWQ_ORDER)),
            "qzeros": torch.from_numpy(words(self.zeros.T, 4, AWQ_ORDER)),
            "scales": torch.from_numpy(self.scales.T.copy()),
        }

    def gptq(self, version: int = 1) -> dict[str, Tensor]:
        zeros = (self.zeros - 1) % 2**self.bits if version == 1 else self.zeros
        return {
            "qweight": torch.from_numpy(words(self.codes, self.bits).T.copy()),
            "qzeros": torch.from_numpy(words(zeros.T, self.bits)),
            "scales": torch.from_numpy(self.scales.T.copy()),
            "g_idx": torch.from_numpy(self.group_of.astype(np.int32)),
        }


def named(module: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{module}.{part}": tensor for part, tensor in tensors.items()}
