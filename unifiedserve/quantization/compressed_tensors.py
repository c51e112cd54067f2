"""Read compressed-tensors: integers (compressed_integers.py) or FP8 (float8.py).

There is a config for each group of modules. A weight's tensors tell whether it is quantised, and in which format; the
config tells the rest.
"""

from collections.abc import Mapping
from typing import Any

import torch

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.compressed_integers import integer_weight
from unifiedserve.quantization.float8 import block_of, float8_weight, is_float8
from unifiedserve.quantization.stored import Module, StoredWeight, pattern

_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
_MIXED = "mixed-precision"  # the groups tell theirs


class CompressedTensors:
    """Read the weights of a checkpoint with the quant_method "compressed-tensors"."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for another format, or sparse weights."""
        self._groups: list[Mapping[str, Any]] = list((config.get("config_groups") or {}).values())
        for stored in (config.get("format"), *(group.get("format") for group in self._groups)):
            if stored not in (*_FORMATS, _MIXED, None):
                raise ConfigError(
                    f"quantization_config: compressed-tensors of format {stored!r} is not supported; "
                    f"those that are: {', '.join(_FORMATS)}"
                )
        sparsity = (config.get("sparsity_config") or {}).get("format", "dense")
        if sparsity != "dense":
            raise ConfigError(f"quantization_config: sparse weights ({sparsity}) are not supported")

    def weight(self, module: Module) -> StoredWeight | None:
        if is_float8(module):
            block = block_of(self._settings(module.name).get("block_structure"))
            return float8_weight(module, "weight_scale", block)
        if {"weight_packed", "weight_shape"} & module.tensors.keys():
            return integer_weight(module, "weight_packed", self._settings(module.name))
        if "weight" in module.tensors and module.tensors["weight"].dtype == torch.int8:
            return integer_weight(module, "weight", self._settings(module.name))
        if "weight_scale" in module.tensors:
            module.tensor("weight", (torch.int8, torch.float8_e4m3fn))
        return None

    def _settings(self, module: str) -> Mapping[str, Any]:
        """Return what the config says of a module's weight: by its name, by a pattern, or for all that are linear.

        A single group is of all quantised modules. Raises ConfigError if none is of this one.
        """
        groups = self._groups * (len(self._groups) == 1) or [
            group
            for matches in (_equals, _matches, _is_linear)
            for group in self._groups
            if any(matches(target, module) for target in group.get("targets") or ())
        ]
        if not groups or not groups[0].get("weights"):
            raise ConfigError(f"{module}.weight is quantised, but no group of the quantization_config has its settings")
        weights: Mapping[str, Any] = groups[0]["weights"]
        return weights


def _equals(target: str, module: str) -> bool:
    return target == module


def _matches(target: str, module: str) -> bool:
    return target.startswith("re:") and bool(pattern(target.removeprefix("re:")).match(module))


def _is_linear(target: str, module: str) -> bool:
    return target == "Linear"  # what is quantised always is
