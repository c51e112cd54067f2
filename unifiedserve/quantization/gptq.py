"""Read GPTQ: codes of 4 or 8 bits in words along the inputs, C of them in a word.

qweight: int32 [K / C, N]; qzeros: int32 [groups, N / C]; scales: [groups, N]; g_idx: int32 [K], each input's group.
The zeros are stored minus one unless checkpoint_format is "gptq_v2". With `sym` they are in the middle, and not read:
there are checkpoints that hold them in the other way than they say.
With `desc_act` any input may be in any group, which kernels do not take: such weights become plain ones.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.group_index import assemble
from unifiedserve.quantization.matrix import QuantizedMatrix, middle
from unifiedserve.quantization.packing import unpack
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.quantization.stored import (
    FLOATS,
    Axes,
    Axis,
    Module,
    StoredWeight,
    group_axis,
    group_size,
    pattern,
)

_FORMATS = ("gptq", "gptq_v2")


class GPTQ:
    """Read the weights of a checkpoint with the quant_method "gptq"."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for another checkpoint_format."""
        stored = str(config.get("checkpoint_format") or config.get("format") or "gptq").lower()
        if stored not in _FORMATS:
            supported = " and ".join(map(repr, _FORMATS))
            raise ConfigError(f"quantization_config: GPTQ stored as {stored!r} is not supported; only {supported} are")
        self._config = config
        self._offset = int(stored == "gptq")

    def weight(self, module: Module) -> StoredWeight | None:
        if not {"qweight", "qzeros"} & module.tensors.keys():
            return None
        config = self._config_of(module.name)
        bits = config.get("bits")
        if bits not in (4, 8):
            raise ConfigError(f"{module.name}.weight: GPTQ of {bits} bits is not supported; only of 4 or 8 bits")
        per_word = 32 // bits
        words, outputs = module.tensor("qweight", (torch.int32,)).shape
        inputs = words * per_word
        group = group_size(config, inputs)
        scheme = module.scheme(bits, inputs, group)
        dtype = module.tensor("scales", FLOATS, [inputs // group, outputs]).dtype
        module.tensor("qzeros", (torch.int32,), [inputs // group, -(-outputs // per_word)])
        any_order = bool(config.get("desc_act")) and group < inputs
        indexed = any_order or "g_idx" in module.tensors
        if indexed:
            module.tensor("g_idx", (torch.int32, torch.int64), [inputs])
        header = module.weight(dtype, [outputs, inputs], None if any_order else scheme)
        layout = _Layout(header.name, bits, None if config.get("sym") else self._offset, group, header.scheme)
        groups = None if any_order else group_axis(0, group, inputs)
        parts = {
            "qweight": Axes(Axis(1), Axis(0, per_word)),
            "qzeros": Axes(Axis(1, per_word), groups),
            "scales": Axes(Axis(1), groups),
        }
        if indexed:
            parts["g_idx"] = Axes(inputs=Axis(0)) if any_order else Axes()
        return StoredWeight(header, parts, partial(_decode, layout))

    def _config_of(self, module: str) -> Mapping[str, Any]:
        """Return the settings of a module: those of all, changed by the first pattern of `dynamic` that it matches."""
        for names, changes in (self._config.get("dynamic") or {}).items():
            if pattern(names.removeprefix("+:")).match(module):
                return {**self._config, **changes}
        return self._config


class _Layout(NamedTuple):
    """Describe how a weight is stored, in groups of so many inputs.

    `offset` is to be added to the zeros, None if they are in the middle.
    """

    name: str
    bits: int
    offset: int | None
    group: int
    scheme: Scheme | None


def _decode(layout: _Layout, parts: Mapping[str, Tensor]) -> Tensor | QuantizedMatrix:
    scales = parts["scales"].T
    if layout.offset is None:
        zeros = middle(layout.bits)
    else:
        stored = unpack(parts["qzeros"], layout.bits)[:, : len(scales)].T
        zeros = (stored + layout.offset) & (2**layout.bits - 1)  # a zero of 0 is stored as the highest code
    codes = unpack(parts["qweight"].T, layout.bits)
    return assemble(layout.name, codes, scales, zeros, parts.get("g_idx"), layout.group, layout.scheme)
