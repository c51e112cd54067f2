"""Read the weights of a quantised checkpoint from the tensors in its files."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import Header, Load, LoadWeight, StoredTensors, whole
from unifiedserve.quantization.awq import AWQ
from unifiedserve.quantization.compressed_tensors import CompressedTensors
from unifiedserve.quantization.float8 import FP8
from unifiedserve.quantization.gptq import GPTQ
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.stored import Format, Module, StoredWeight

_FORMATS: dict[str, type[AWQ | GPTQ | CompressedTensors | FP8]] = {
    "awq": AWQ,
    "gptq": GPTQ,
    "compressed-tensors": CompressedTensors,
    "fp8": FP8,
}
_KEYS = ("quantization_config", "compression_config")  # of config.json; compressed-tensors once wrote the latter
_BITSANDBYTES = ("load_in_4bit", "load_in_8bit")
#: tensors of modules that say nothing which is needed: scales of activations, of keys and values, and unused parts
_HIDDEN = frozenset(f"{of}_{what}" for of in ("input", "output", "q", "k", "v") for what in ("scale", "zero_point")) | {
    "activation_scale",
    "g_idx",
    "kv_scale",
    "weight_g_idx",
    "weight_zero_point",
}


class QuantizedTensors:
    """Read the weights of a checkpoint: each `X.weight` that is stored quantised, instead of its stored tensors.

    It is a matrix if its header has a scheme, otherwise a plain tensor. All other tensors are as they are.
    """

    def __init__(self, source: StoredTensors, config: Mapping[str, Any]) -> None:
        """Take the tensors in the files and the `quantization_config`; raises ConfigError if that is not supported."""
        self._source = source
        self._format = _format(config)

    def headers(self) -> list[Header]:
        """List the weights where the first of their tensors are.

        Raises ConfigError for tensors that are missing, of another shape or dtype than the config says, or in groups
        that kernels do not take.
        """
        headers = self._source.headers()
        weights = self._weights(headers)
        shown: dict[str, Header] = {}
        for header in headers:
            if header.name in weights:
                header = weights[header.name].header
            elif header.dtype == torch.float8_e4m3fn:
                raise ConfigError(
                    f"{header.name} is stored as FP8, but not as a weight with scales that are known here"
                )
            shown.setdefault(header.name, header)
        return [header for name, header in shown.items() if _part(name) not in _HIDDEN]

    def read(self) -> Iterator[tuple[str, Tensor | QuantizedMatrix]]:
        return whole(self.loads())

    def loads(self) -> Iterator[tuple[str, LoadWeight]]:
        """Yield each weight as soon as all its tensors have come."""
        weights = self._weights(self._source.headers())
        gathered: dict[str, dict[str, Load]] = {}
        for name, load in self._source.loads():
            if name in weights:
                weight = weights[name]
                parts = gathered.setdefault(weight.header.name, {})
                parts[_part(name)] = load
                if len(parts) == len(weight.parts):
                    yield weight.header.name, partial(weight.read, gathered.pop(weight.header.name))
            elif _part(name) not in _HIDDEN:
                yield name, load

    def _weights(self, headers: Iterable[Header]) -> dict[str, StoredWeight]:
        """Return the quantised weights by the names of all their tensors."""
        modules: dict[str, dict[str, Header]] = {}
        for header in headers:
            modules.setdefault(_module(header.name), {})[_part(header.name)] = header
        stored = {name: self._format.weight(Module(name, tensors)) for name, tensors in modules.items()}
        weights = {f"{module}.{part}": weight for module, weight in stored.items() if weight for part in weight.parts}
        for weight in weights.values():
            if weight.header.name not in weights and "weight" in modules[_module(weight.header.name)]:
                raise ConfigError(f"{weight.header.name} is stored both quantised and plain")
        return weights


def quantization_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a config.json says of quantisation, for the whole model or its text; None if nothing."""
    parts: list[Mapping[str, Any]] = [config, config.get("text_config") or {}]
    return next((part[key] for part in parts for key in _KEYS if part.get(key)), None)


def require_plain(config: Mapping[str, Any], option: str) -> None:
    """Raise ConfigError if `option` asks to quantise a checkpoint that its config.json calls quantised."""
    if quantized := quantization_config(config):
        raise ConfigError(
            f"{option}: this checkpoint is quantised already ({_method(quantized)}); "
            f"leave {option} out, or take the checkpoint that it was made of"
        )


def _format(config: Mapping[str, Any]) -> Format:
    method = _method(config)
    if method not in _FORMATS:
        raise ConfigError(
            f"quantization_config: checkpoints quantised by {method} are not supported; "
            f"those that are: {', '.join(_FORMATS)}"
        )
    return _FORMATS[method](config)


def _method(config: Mapping[str, Any]) -> str:
    default = "bitsandbytes" if any(config.get(key) for key in _BITSANDBYTES) else "a method that it does not name"
    return str(config.get("quant_method") or default)


def _part(name: str) -> str:
    return name.rpartition(".")[2]


def _module(name: str) -> str:
    return name.rpartition(".")[0]
