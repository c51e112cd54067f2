"""What of a checkpoint goes into shared memory, and in which form."""

from pathlib import Path
from typing import Any

import torch

from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.memory.panels import Dequantized, PanelTensors
from unifiedserve.memory.tensors import SafetensorsFiles, Tensors, Weights
from unifiedserve.models.dummy import DummyTensors
from unifiedserve.models.matrices import language_matrices
from unifiedserve.quantization.on_the_fly import DEFAULTS, OnTheFly
from unifiedserve.quantization.read import QuantizedTensors, quantization_config, require_plain

_BITS = {"int8": 8, "int4": 4}


def weight_source(config: EngineConfig, model_dir: Path, model_config: Any, device: Device, dtype: str) -> Tensors:
    """Return the tensors to store for the workers: on the processor, the language model's matrices in panels.

    Raises ConfigError for a quantised checkpoint that is not supported, or if one is to be quantised that is already,
    or on a device that has no products of codes.
    """
    torch_dtype: torch.dtype = getattr(torch, dtype)
    wanted = language_matrices(model_config)
    weights = _weights(config, model_dir, model_config, torch_dtype)
    if not device.panels(dtype):
        if config.quantization != "none":
            raise ConfigError(
                f"--quantization {config.quantization} computes with the CPU's kernels for now: "
                "leave it out, or give --device cpu"
            )
        return Dequantized(weights)
    return PanelTensors(weights, torch_dtype, wanted)


def _weights(config: EngineConfig, model_dir: Path, model_config: Any, dtype: torch.dtype) -> Weights:
    raw = read_json(model_dir / "config.json")
    if config.quantization != "none":
        require_plain(raw, f"--quantization {config.quantization}")
    dummy = config.load_format == "dummy"
    tensors: Tensors = DummyTensors(model_config, dtype) if dummy else SafetensorsFiles(model_dir)
    if config.quantization != "none":
        return OnTheFly(tensors, DEFAULTS[_BITS[config.quantization]], language_matrices(model_config))
    stored = None if dummy else quantization_config(raw)
    return QuantizedTensors(tensors, stored) if stored else tensors
