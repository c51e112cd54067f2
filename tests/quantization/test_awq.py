"""AWQ checkpoints: what they are worth, and what is refused."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_weights import AWQ, Drawn, checkpoint, named, read_all

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outputs=st.integers(1, 5), groups=st.integers(1, 3), group=st.sampled_from([32, 64, 128]), seed=st.integers(0, 99)
)
def test_values(outputs: int, groups: int, group: int, seed: int, tmp_path: Path) -> None:
    drawn = Drawn(8 * outputs, groups * group, group, seed=seed)
    source = checkpoint(tmp_path, named("layer.q_proj", drawn.awq()), AWQ | {"group_size": group})
    (matrix,) = read_all(source).values()
    assert isinstance(matrix, QuantizedMatrix)
    assert matrix.scheme == Scheme(4, group)
    torch.testing.assert_close(matrix.dequantize().double(), drawn.values(), rtol=1e-6, atol=0)


def test_what_is_listed(tmp_path: Path) -> None:
    bias, head = torch.ones(8), torch.ones(3, 64, dtype=torch.bfloat16)
    tensors = named("q_proj", Drawn(8, 64, 32).awq()) | {"q_proj.bias": bias, "lm_head.weight": head}
    source = checkpoint(tmp_path, tensors, AWQ | {"modules_to_not_convert": ["lm_head"]})
    headers = {header.name: header for header in source.headers()}
    assert headers.keys() == {"q_proj.weight", "q_proj.bias", "lm_head.weight"}
    assert headers["q_proj.weight"][1:4] == (torch.float16, [8, 64], Scheme(4, 32))
    assert headers["lm_head.weight"][1:4] == (torch.bfloat16, [3, 64], None)
    values = read_all(source)
    assert torch.equal(values["lm_head.weight"], head)
    assert torch.equal(values["q_proj.bias"], bias)


@pytest.mark.parametrize(
    ("group", "inputs", "expected"), [(-1, 192, 64), (-1, 256, 128), (256, 512, 128), (96, 192, 32), (48, 192, 16)]
)
def test_coarse_scales_are_repeated(group: int, inputs: int, expected: int, tmp_path: Path) -> None:
    drawn = Drawn(8, inputs, inputs if group == -1 else group)
    (matrix,) = read_all(checkpoint(tmp_path, named("x", drawn.awq()), AWQ | {"group_size": group})).values()
    assert isinstance(matrix, QuantizedMatrix)
    assert matrix.scheme == Scheme(4, expected)
    torch.testing.assert_close(matrix.dequantize().double(), drawn.values(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("group", "said"),
    [(32, {"q_group_size": 32, "w_bit": 4}), (128, {}), (256, {"group_size": None})],
    ids=["AutoAWQ's own names", "nothing", "null"],
)
def test_sizes_of_groups_as_others_read_them(group: int, said: dict[str, object], tmp_path: Path) -> None:
    drawn = Drawn(8, 256, group)
    config = {name: value for name, value in AWQ.items() if name not in ("group_size", "bits")}
    (matrix,) = read_all(checkpoint(tmp_path, named("x", drawn.awq()), config | said)).values()
    assert isinstance(matrix, QuantizedMatrix)
    torch.testing.assert_close(matrix.dequantize().double(), drawn.values(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "gemv"}, "AWQ of version 'gemv' is not supported; only 'gemm' is"),
        ({"bits": 8}, "AWQ of 8 bits is not supported; only of 4 bits"),
        ({"zero_point": False}, "AWQ with zero_point false is not supported"),
        ({"group_size": 48}, r"x\.weight: groups of 48 do not divide its 64 inputs"),
        ({"group_size": 8}, r"x\.weight: groups of 8 inputs \(of 64\) are not multiples of 16"),
        ({"group_size": 0}, r"x\.weight: groups of 0 do not divide"),
        ({"group_size": "32"}, "group_size is '32'; expected a number of inputs"),
        ({"group_size": 64}, r"x\.scales is float16 \[2, 8\]; expected float16 or bfloat16 or float32 \[1, 8\]"),
    ],
)
def test_config_that_does_not_fit(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, named("x", Drawn(8, 64, 32).awq()), AWQ | change).headers()


@pytest.mark.parametrize(
    ("part", "tensor", "message"),
    [
        ("scales", None, r"x\.scales is missing; expected float16 or bfloat16 or float32 \[2, 8\]"),
        ("qzeros", None, r"x\.qzeros is missing; expected int32 \[2, 1\]"),
        ("qweight", None, r"x\.qweight is missing; expected int32 of two dimensions"),
        ("qzeros", torch.zeros(1, 1, dtype=torch.int32), r"x\.qzeros is int32 \[1, 1\]; expected int32 \[2, 1\]"),
        ("qweight", torch.zeros(64, 1), r"x\.qweight is float32 \[64, 1\]; expected int32"),
        ("qweight", torch.zeros(64, dtype=torch.int32), r"x\.qweight is int32 \[64\]; expected int32 of two dim"),
        ("weight", torch.zeros(8, 64), r"x\.weight is stored both quantised and plain"),
    ],
)
def test_tensors_that_do_not_fit(part: str, tensor: torch.Tensor | None, message: str, tmp_path: Path) -> None:
    tensors = Drawn(8, 64, 32).awq()
    tensors.pop(part, None)
    if tensor is not None:
        tensors[part] = tensor
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, named("x", tensors), AWQ).headers()
