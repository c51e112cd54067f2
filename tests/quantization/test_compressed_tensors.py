"""compressed-tensors checkpoints as its own library writes them, against what the library reads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_weights import checkpoint, named, read_all
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme

W4A16 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
W8A8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}


def compress(*given: Any) -> tuple[dict[str, Tensor], Tensor]:
    import compressed_reference  # the library takes seconds to import

    return compressed_reference.compress(*given)


def config(stored: str, weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": stored, "config_groups": groups} | more


def draw(outputs: int, inputs: int, seed: int = 0) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outputs=st.integers(9, 40),  # the library cannot read zeros that are packed into a single word
    groups=st.integers(1, 3),
    stored=st.sampled_from(["pack-quantized", "int-quantized", "naive-quantized"]),
    strategy=st.sampled_from(["group", "channel", "tensor"]),
    bits=st.sampled_from([4, 8]),
    symmetric=st.booleans(),
    seed=st.integers(0, 99),
)
def test_integers(
    outputs: int, groups: int, stored: str, strategy: str, bits: int, symmetric: bool, seed: int, tmp_path: Path
) -> None:
    weights: dict[str, Any] = {"num_bits": bits, "type": "int", "strategy": strategy, "symmetric": symmetric}
    if strategy == "group":
        weights["group_size"] = 64
    tensors, expected = compress(draw(outputs, 64 * groups, seed), stored, weights)
    (matrix,) = read_all(checkpoint(tmp_path, named("x", tensors), config(stored, weights))).values()
    assert isinstance(matrix, QuantizedMatrix)
    assert matrix.scheme == Scheme(bits, 128 if strategy != "group" and groups == 2 else 64)
    torch.testing.assert_close(matrix.dequantize(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", ["tensor", "channel", "block"])
@pytest.mark.parametrize("stored", ["float-quantized", "naive-quantized"])
def test_fp8_becomes_a_plain_tensor(strategy: str, stored: str, tmp_path: Path) -> None:
    weights = FP8 | {"strategy": strategy} | ({"block_structure": [16, 32]} if strategy == "block" else {})
    tensors, expected = compress(draw(48, 96), stored, weights)
    tensors |= {"input_scale": torch.ones(1)}
    source = checkpoint(tmp_path, named("x", tensors), config(stored, weights))
    (value,) = read_all(source).values()
    assert isinstance(value, Tensor)
    assert tensors["weight"].dtype == torch.float8_e4m3fn
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)


def test_what_is_listed(tmp_path: Path) -> None:
    packed, _ = compress(draw(8, 64), "pack-quantized", W4A16)
    head = draw(5, 64).bfloat16()
    tensors = named("q_proj", packed) | {"lm_head.weight": head, "q_proj.bias": draw(1, 8)[0]}
    tensors |= {"attn.k_scale": torch.ones(1), "attn.v_scale": torch.ones(1), "attn.kv_scale": torch.ones(1)}
    tensors |= {"q_proj.input_scale": torch.ones(1)}
    source = checkpoint(tmp_path, tensors, config("pack-quantized", W4A16, ignore=["lm_head"]))
    headers = {header.name: header for header in source.headers()}
    assert headers.keys() == {"q_proj.weight", "q_proj.bias", "lm_head.weight"}
    assert headers["q_proj.weight"][1:4] == (torch.float32, [8, 64], Scheme(4, 32))
    assert torch.equal(read_all(source)["lm_head.weight"], head)


def test_groups_of_modules_have_settings_of_their_own(tmp_path: Path) -> None:
    asymmetric, wide = W4A16 | {"symmetric": False}, {**W4A16, "num_bits": 8}
    stored = {"a.up": W4A16, "a.down": asymmetric, "b.up": wide, "b.down": FP8}
    groups = {
        "linear": {"targets": ["Linear"], "weights": W4A16},
        "down": {"targets": ["re:.*down"], "weights": asymmetric},
        "one": {"targets": ["b.up"], "weights": wide},
        "float": {"targets": ["b.down"], "weights": FP8, "format": "float-quantized"},
    }
    tensors, expected = {}, {}
    for name, weights in stored.items():
        form = "float-quantized" if weights == FP8 else "pack-quantized"
        parts, expected[name] = compress(draw(16, 64), form, weights)
        tensors |= named(name, parts)
    source = checkpoint(tmp_path, tensors, config("mixed-precision", {}, config_groups=groups))
    for name, value in read_all(source).items():
        dequantized = value.dequantize() if isinstance(value, QuantizedMatrix) else value
        torch.testing.assert_close(dequantized, expected[name.removesuffix(".weight")], rtol=1e-5, atol=1e-6)


def test_zeros_of_older_versions_are_not_packed(tmp_path: Path) -> None:
    weights = W4A16 | {"symmetric": False}
    tensors, expected = compress(draw(9, 64), "pack-quantized", weights)
    codes = tensors["weight_zero_point"]
    unpacked = torch.stack([(codes[row // 8] >> 4 * (row % 8)) & 15 for row in range(9)]).sub(8).to(torch.int8)
    tensors = {**tensors, "weight_zero_point": unpacked}
    (matrix,) = read_all(checkpoint(tmp_path, named("x", tensors), config("pack-quantized", weights))).values()
    assert isinstance(matrix, QuantizedMatrix)
    torch.testing.assert_close(matrix.dequantize(), expected, rtol=1e-5, atol=1e-6)


def test_inputs_in_another_order_become_a_plain_tensor(tmp_path: Path) -> None:
    """Which group an input is in, an index tells: a matrix with its inputs in order, and its columns moved."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    weights = W4A16 | {"actorder": "group"}
    tensors, expected = compress(draw(8, 64), "int-quantized", W4A16)
    tensors = {**tensors, "weight": tensors["weight"][:, order], "weight_g_idx": (order // 32).int()}
    source = checkpoint(tmp_path, named("x", tensors), config("int-quantized", weights))
    assert [header.scheme for header in source.headers()] == [None]
    torch.testing.assert_close(read_all(source)["x.weight"], expected[:, order], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (config("marlin-24", W4A16), "format 'marlin-24' is not supported; those that are: pack-quantized, int-q"),
        (config("nvfp4-pack-quantized", W4A16), "format 'nvfp4-pack-quantized' is not supported"),
        (
            config("pack-quantized", W4A16, sparsity_config={"format": "sparse-24-bitmask"}),
            r"sparse weights \(sparse-24-bitmask\) are not supported",
        ),
        (config("pack-quantized", W4A16 | {"num_bits": 3}), r"x\.weight: weights of 3 bits, type 'int' and strategy"),
        (config("pack-quantized", W4A16 | {"type": "float"}), r"x\.weight: weights of 4 bits, type 'float' and strat"),
        (config("pack-quantized", W4A16 | {"group_size": 48}), r"x\.weight: groups of 48 do not divide its 64 inputs"),
        (
            config("pack-quantized", W4A16 | {"group_size": 64}),
            r"x\.weight_scale is float32 \[8, 2\]; expected .*\[8, 1\]",
        ),
        (
            config("pack-quantized", W4A16 | {"symmetric": False}),
            r"x\.weight_zero_point is missing; expected int32 \[1, 2\]",
        ),
        (config("pack-quantized", W4A16 | {"actorder": "group"}), r"x\.weight_g_idx is missing"),
        (config("pack-quantized", W4A16, config_groups={}), r"x\.weight is quantised, but no group"),
        (
            config("pack-quantized", {}, config_groups={n: {"targets": [n], "weights": W4A16} for n in ("y", "z")}),
            r"x\.weight is quantised, but no group",
        ),
        (
            config("pack-quantized", {}, config_groups={n: {"targets": [n], "weights": W4A16} for n in ("re:(", "z")}),
            r"'\(' is no pattern of names",
        ),
    ],
)
def test_config_that_does_not_fit(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors, _ = compress(draw(8, 64), "pack-quantized", W4A16)
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, named("x", tensors), changed).headers()


@pytest.mark.parametrize(
    ("stored", "part", "tensor", "message"),
    [
        ("pack-quantized", "weight_scale", None, r"x\.weight_scale is missing; expected .*\[8, 2\]"),
        ("pack-quantized", "weight_packed", None, r"x\.weight_packed is missing; expected int32"),
        (
            "pack-quantized",
            "weight_scale",
            torch.ones(8, 1),
            r"x\.weight_scale is float32 \[8, 1\]; expected .*\[8, 2\]",
        ),
        ("pack-quantized", "weight_packed", torch.ones(8, 8), r"x\.weight_packed is float32 \[8, 8\]; expected int32"),
        ("int-quantized", "weight_scale", None, r"x\.weight_scale is missing"),
        ("int-quantized", "weight", None, r"x\.weight is missing; expected int8 or float8_e4m3fn"),
        (
            "int-quantized",
            "weight",
            torch.ones(8, 64),
            r"x\.weight is float32 \[8, 64\]; expected int8 or float8_e4m3fn",
        ),
    ],
)
def test_tensors_that_do_not_fit(stored: str, part: str, tensor: Tensor | None, message: str, tmp_path: Path) -> None:
    tensors, _ = compress(draw(8, 64), stored, W4A16)
    del tensors[part]
    if tensor is not None:
        tensors[part] = tensor
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, named("x", tensors), config(stored, W4A16)).headers()


def test_a_weight_smaller_than_its_words(tmp_path: Path) -> None:
    weights = {**W4A16, "strategy": "channel", "group_size": None}
    tensors, _ = compress(draw(8, 60), "pack-quantized", weights)
    source = checkpoint(tmp_path, named("x", tensors), config("pack-quantized", weights))
    with pytest.raises(ConfigError, match=r"x\.weight: weight_shape is \[8, 60\]; its codes are \[8, 64\]"):
        list(source.read())
