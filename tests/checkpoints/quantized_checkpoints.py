"""Whole checkpoints: the tiny one with its language model's matrices quantised, and with the values that these have."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from stored_weights import AWQ, GPTQ, Drawn, named
from torch import Tensor

from unifiedserve.engine.weight_source import schemes
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.models.registry import load_config
from unifiedserve.models.tiny import make_checkpoint
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.on_the_fly import OnTheFly
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import Scheme

Quantize = Callable[[Tensor], tuple[dict[str, Tensor], Tensor]]
MATRIX = re.compile(r"model\.layers\.\d+\.\S+_proj\.weight")
PACKED = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": PACKED}},
}


def write_gptq(directory: Path) -> None:
    """Write 4 bits in groups of 32, with biases of zeros for modules that have none."""
    _write(directory, GPTQ, _gptq)


def write_gptq_values(directory: Path) -> None:
    """Write what `write_gptq` stands for, in float32."""
    _write_values(directory, _gptq)


def write_awq(directory: Path) -> None:
    """Write 4 bits in groups of 32."""
    _write(directory, AWQ, lambda weight: (_drawn(weight).awq(), torch.empty(0)))


def write_packed(directory: Path) -> None:
    """Write 4 bits in groups of 32, as the library `compressed-tensors` packs them."""
    _write(directory, COMPRESSED, _packed)


def write_packed_values(directory: Path) -> None:
    """Write what the library reads from that, in float32."""
    _write_values(directory, _packed)


def write_int8_values(directory: Path) -> None:
    """Write what `--quantization int8` makes of the tiny checkpoint, in float32."""
    _write_loaded_values(directory, 8)


def write_int4_values(directory: Path) -> None:
    """Write what `--quantization int4` makes of the tiny checkpoint, in float32."""
    _write_loaded_values(directory, 4)


def _write(directory: Path, config: dict[str, Any], how: Quantize) -> None:
    stored = load_file(make_checkpoint(directory) / "model.safetensors")
    for name, weight in _matrices(stored).items():
        del stored[name]
        stored = named(name.removesuffix(".weight"), how(weight)[0]) | stored  # of two biases the model's own
    _save(directory, stored)
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": config}))


def _write_values(directory: Path, how: Quantize) -> None:
    stored = load_file(make_checkpoint(directory) / "model.safetensors")
    values = {name: how(weight)[1] for name, weight in _matrices(stored).items()}
    _save(directory, {name: tensor.float() for name, tensor in stored.items()} | values)


def _write_loaded_values(directory: Path, bits: int) -> None:
    make_checkpoint(directory)
    source = OnTheFly(SafetensorsFiles(directory), schemes(bits, load_config(directory)))
    read = dict(source.read())
    _save(
        directory,
        {name: each.dequantize() if isinstance(each, QuantizedMatrix) else each.float() for name, each in read.items()},
    )


def _save(directory: Path, tensors: dict[str, Tensor]) -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, directory / "model.safetensors", metadata={"format": "pt"})


def _matrices(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in stored.items() if MATRIX.fullmatch(name)}


def _gptq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    drawn = _drawn(weight)
    return drawn.gptq() | {"bias": torch.zeros(len(weight), dtype=torch.float16)}, drawn.values().float()


def _drawn(weight: Tensor) -> Drawn:
    matrix = quantize(weight, Scheme(4, 32))
    drawn = Drawn(*weight.shape, group=32)
    zeros = matrix.zeros.round().clamp(0, 15)  # AWQ and GPTQ know no others
    drawn.codes, drawn.zeros = (tensor.numpy().astype(np.int64) for tensor in (matrix.codes, zeros))
    drawn.scales = matrix.scales.numpy().astype(np.float16)
    return drawn


def _packed(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    from compressed_reference import compress  # the library takes seconds to import

    return compress(weight, "pack-quantized", PACKED)
