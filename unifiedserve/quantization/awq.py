"""Read AWQ, version "gemm": 4-bit codes in words along the outputs.

qweight: int32 [K, N / 8]; qzeros: int32 [groups, N / 8]; scales: [groups, N].
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.matrix import QuantizedMatrix, canonical
from unifiedserve.quantization.packing import unpack
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.quantization.stored import FLOATS, Axes, Axis, Module, StoredWeight, group_axis, group_size

#: where in a word outputs 0 to 7 are: it holds 0, 2, 4, 6, 1, 3, 5, 7
_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
_GROUP = 128  # inputs that share a scale where a config does not say


class AWQ:
    """Read the weights of a checkpoint with the quant_method "awq"."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for another version, other bits, or codes without zeros."""
        version = str(config.get("version") or config.get("format") or "gemm").lower()
        if version != "gemm":
            raise ConfigError(f"quantization_config: AWQ of version {version!r} is not supported; only 'gemm' is")
        if (bits := config.get("bits", config.get("w_bit", 4))) != 4:
            raise ConfigError(f"quantization_config: AWQ of {bits} bits is not supported; only of 4 bits")
        if config.get("zero_point") is False:
            raise ConfigError("quantization_config: AWQ with zero_point false is not supported")
        self._groups = {"group_size": config.get("q_group_size", config.get("group_size", _GROUP))}

    def weight(self, module: Module) -> StoredWeight | None:
        if not {"qweight", "qzeros"} & module.tensors.keys():
            return None
        inputs, words = module.tensor("qweight", (torch.int32,)).shape
        group = group_size(self._groups, inputs)
        scheme = module.scheme(4, inputs, group)
        scales = module.tensor("scales", FLOATS, [inputs // group, words * 8])
        module.tensor("qzeros", (torch.int32,), [inputs // group, words])
        header = module.weight(scales.dtype, [words * 8, inputs], scheme)
        groups = group_axis(0, group, inputs)
        parts = {
            "qweight": Axes(Axis(1, 8), Axis(0)),
            "qzeros": Axes(Axis(1, 8), groups),
            "scales": Axes(Axis(1), groups),
        }
        return StoredWeight(header, parts, partial(_decode, scheme=scheme))


def _decode(parts: Mapping[str, Tensor], scheme: Scheme) -> QuantizedMatrix:
    return canonical(_unpack(parts["qweight"]).T, parts["scales"].T, _unpack(parts["qzeros"]).T, scheme)


def _unpack(words: Tensor) -> Tensor:
    """Return uint8 [rows, words * 8] in the order of the outputs."""
    return unpack(words, 4).view(*words.shape, 8)[..., _PLACES].flatten(1)
