"""Weights quantised and stored by the library `compressed-tensors`, and what it reads from them."""

from typing import Any

from torch import Tensor

from unifiedserve.models.hub import load_transformers

load_transformers()  # the library imports it, which may fail after torchvision's import

from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams  # noqa: E402


def compress(weight: Tensor, stored: str, weights: dict[str, Any]) -> tuple[dict[str, Tensor], Tensor]:
    """Return a weight's tensors in the format `stored`, with settings as in a config, and the weight read from them."""
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    compressor = BaseCompressor.get_value_from_registry(stored)
    scale, zero = calculate_qparams(*_extremes(weight, weights), scheme.weights)
    tensors = compressor.compress({"weight": weight, "weight_scale": scale, "weight_zero_point": zero}, scheme)
    return tensors, compressor.decompress(tensors, scheme)["weight"].float()


def _extremes(weight: Tensor, weights: dict[str, Any]) -> tuple[Tensor, Tensor]:
    match weights["strategy"]:
        case "group":
            parts = weight.view(len(weight), -1, weights["group_size"])
            return parts.amin(-1), parts.amax(-1)
        case "channel":
            return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
        case "block":
            rows, columns = weights["block_structure"]
            blocks = weight.view(len(weight) // rows, rows, -1, columns)
            return blocks.amin((1, 3)), blocks.amax((1, 3))
    return weight.amin().view(1), weight.amax().view(1)
