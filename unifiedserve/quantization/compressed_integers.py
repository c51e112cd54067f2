"""Read compressed-tensors' integers: codes in words along the inputs, C of them in a word, or one in an int8.

Packed: weight_packed int32 [N, K / C], weight_zero_point int32 [N / C, groups]: numbers plus half of their range;
weight_shape holds [N, K]. Otherwise: weight int8 [N, K], weight_zero_point as weight_scale.
weight_scale: [N, groups], or for one group [N, 1], [N], or one number for all.
weight_g_idx: each input's group. With the actorder "group" any input may be in any, and such weights become plain ones.
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
from unifiedserve.quantization.stored import FLOATS, Axes, Axis, Module, StoredWeight, group_axis, group_size

_ZEROS = "weight_zero_point"
_ANY_ORDER = ("group", "dynamic", True)


class _Layout(NamedTuple):
    """Describe how a weight [outputs, inputs] is stored.

    The tensor `part` has `per_word` codes in each of its elements. `group` inputs share a scale.
    """

    name: str
    part: str
    bits: int
    per_word: int
    outputs: int
    inputs: int
    group: int
    scheme: Scheme | None


def integer_weight(module: Module, part: str, settings: Mapping[str, Any]) -> StoredWeight:
    """Return a module's weight whose codes are in the tensor `part`; raises ConfigError if something does not fit."""
    bits = _bits(module, settings)
    packed = part == "weight_packed"
    per_word = 32 // bits if packed else 1
    outputs, words = module.tensor(part, (torch.int32 if packed else torch.int8,)).shape
    inputs = words * per_word
    group = group_size(settings, inputs)
    scheme = module.scheme(bits, inputs, group)
    any_order = settings.get("actorder") in _ANY_ORDER and group < inputs
    scales = [[outputs, 1], [outputs], [1], []] if group == inputs else [[outputs, inputs // group]]
    scale = module.tensor("weight_scale", FLOATS, *scales)
    if not settings.get("symmetric", True):
        zeros = [-(-outputs // per_word), inputs // group]
        _check_zeros(module, scale.shape, zeros if packed else None)
    if any_order or "weight_g_idx" in module.tensors:
        module.tensor("weight_g_idx", (torch.int32, torch.int64), [inputs])
    header = module.weight(scale.dtype, [outputs, inputs], None if any_order else scheme)
    layout = _Layout(header.name, part, bits, per_word, outputs, inputs, group, header.scheme)
    used = module.tensors.keys() - ({_ZEROS} if settings.get("symmetric", True) else set())
    parts = {name: axes for name, axes in _axes(module, layout, any_order).items() if name in used}
    return StoredWeight(header, parts, partial(_decode, layout))


def _axes(module: Module, layout: _Layout, any_order: bool) -> dict[str, Axes]:
    """Return where outputs and inputs lie in each tensor that there may be."""
    groups = None if any_order else group_axis(1, layout.group, layout.inputs)
    is_by_output = module.tensors["weight_scale"].shape[:1] == [layout.outputs]
    scale = Axes(Axis(0) if is_by_output else None, groups)
    packed = _ZEROS in module.tensors and module.tensors[_ZEROS].dtype == torch.int32
    return {
        layout.part: Axes(Axis(0), Axis(1, layout.per_word)),
        "weight_scale": scale,
        "weight_shape": Axes(),
        _ZEROS: Axes(Axis(0, layout.per_word), groups) if packed else scale,
        "weight_g_idx": Axes(inputs=Axis(0)) if any_order else Axes(),
    }


def _bits(module: Module, settings: Mapping[str, Any]) -> int:
    bits, kind, strategy = settings.get("num_bits", 8), settings.get("type", "int"), settings.get("strategy")
    if bits not in (4, 8) or kind != "int" or strategy not in (None, "tensor", "channel", "group"):
        raise ConfigError(
            f"{module.name}.weight: weights of {bits} bits, type {kind!r} and strategy {strategy!r} are not supported; "
            "only integers of 4 or 8 bits with scales by tensor, channel or group"
        )
    return int(bits)


def _check_zeros(module: Module, scale: list[int], packed: list[int] | None) -> None:
    """Check the zeros' shape: that of the packed ones, or of the scales, as older versions store them in any case."""
    header = module.tensors.get(_ZEROS)
    if packed and (header is None or header.dtype != torch.int8):
        module.tensor(_ZEROS, (torch.int32,), packed)
    else:
        module.tensor(_ZEROS, (torch.int8,), scale)


def _decode(layout: _Layout, parts: Mapping[str, Tensor]) -> Tensor | QuantizedMatrix:
    stored, scales = parts[layout.part], _columns(parts["weight_scale"])
    _check_shape(layout, parts.get("weight_shape"))
    zeros = middle(layout.bits)
    if _ZEROS in parts:
        zeros = _zeros(parts[_ZEROS], layout.bits, len(stored))
    values = unpack(stored, layout.bits) if layout.per_word > 1 else _as_codes(stored, layout.bits)
    return assemble(layout.name, values, scales, zeros, parts.get("weight_g_idx"), layout.group, layout.scheme)


def _zeros(stored: Tensor, bits: int, outputs: int) -> Tensor:
    if stored.dtype == torch.int8:
        return _as_codes(_columns(stored), bits)
    return unpack(stored.T, bits)[:, :outputs].T


def _as_codes(numbers: Tensor, bits: int) -> Tensor:
    """Turn int8 numbers, half of them below zero, into codes."""
    return numbers.to(torch.int16).add_(2 ** (bits - 1)).to(torch.uint8)


def _columns(values: Tensor) -> Tensor:
    return values if values.dim() == 2 else values.reshape(-1, 1)


def _check_shape(layout: _Layout, stored: Tensor | None) -> None:
    """Raise ConfigError if a weight is told to be smaller than its words: kernels take no part of one."""
    if stored is not None and stored.tolist() != [layout.outputs, layout.inputs]:
        raise ConfigError(
            f"{layout.name}: weight_shape is {stored.tolist()}; its codes are [{layout.outputs}, {layout.inputs}]"
        )
