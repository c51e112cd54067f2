"""Which checkpoints are read, and how their tensors come, whatever the format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from stored_weights import AWQ, Drawn, checkpoint, named, read_all

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.read import QuantizedTensors, quantization_config, require_plain

SUPPORTED = "those that are: awq, gptq, compressed-tensors, fp8"


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "hqq"}, "hqq"),
        ({"quant_method": "quanto"}, "quanto"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"bits": 4}, "a method that it does not name"),
    ],
)
def test_what_is_not_supported(config: dict[str, Any], method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"quantised by {method} are not supported; {SUPPORTED}"):
        checkpoint(tmp_path, {"x": torch.ones(1)}, config)


def test_parts_in_several_files(tmp_path: Path) -> None:
    """A weight comes when the last of its parts is read; others that are complete do not wait for it."""
    split, whole = Drawn(8, 64, 32, seed=1), Drawn(16, 64, 32, seed=2)
    tensors = named("split", split.awq())
    first = {"split.qweight": tensors.pop("split.qweight")} | named("whole", whole.awq())
    files = {"a.safetensors": first, "b.safetensors": tensors | {"norm.weight": torch.ones(4)}}
    for name, parts in files.items():
        save_file(parts, tmp_path / name)
    index = {"weight_map": {tensor: name for name, parts in files.items() for tensor in parts}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    source = QuantizedTensors(SafetensorsFiles(tmp_path), AWQ)
    assert {header.name for header in source.headers()} == {"split.weight", "whole.weight", "norm.weight"}
    assert next(iter(source.read()))[0] == "whole.weight"
    for name, drawn in {"split.weight": split, "whole.weight": whole}.items():
        matrix = read_all(source)[name]
        assert isinstance(matrix, QuantizedMatrix)
        torch.testing.assert_close(matrix.dequantize().double(), drawn.values(), rtol=1e-6, atol=0)


def test_headers_read_nothing(tmp_path: Path) -> None:
    class Unread(SafetensorsFiles):
        def loads(self) -> Any:
            raise AssertionError("read")

    checkpoint(tmp_path, named("x", Drawn(8, 64, 32).awq()), AWQ)
    assert [header.name for header in QuantizedTensors(Unread(tmp_path), AWQ).headers()] == ["x.weight"]


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": AWQ},
        {"text_config": {"quantization_config": AWQ}},
        {"compression_config": AWQ},  # as compressed-tensors wrote it before
        {"quantization_config": None, "text_config": {"compression_config": AWQ}},
    ],
)
def test_quantised_already(config: dict[str, Any]) -> None:
    assert quantization_config(config) == AWQ
    with pytest.raises(ConfigError, match=r"--quantization: this checkpoint is quantised already \(awq\); leave"):
        require_plain(config, "--quantization")


def test_not_quantised() -> None:
    assert quantization_config({"text_config": {}}) is None
    require_plain({"hidden_size": 8}, "--quantization")
