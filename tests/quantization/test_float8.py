"""FP8 checkpoints, whose weights become plain tensors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_weights import checkpoint, named, read_all
from torch import Tensor

from unifiedserve.errors import ConfigError

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def draw(outputs: int, inputs: int, seed: int = 0) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed)).to(torch.float8_e4m3fn)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outputs=st.integers(1, 300), inputs=st.integers(1, 300), block=st.sampled_from([(128, 128), (64, 32)]))
def test_blocks(outputs: int, inputs: int, block: tuple[int, int], tmp_path: Path) -> None:
    """The value of an element is itself times the scale of the block that it is in; blocks at the ends are smaller."""
    weight, (rows, columns) = draw(outputs, inputs), block
    scales = torch.rand(-(-outputs // rows), -(-inputs // columns)) + 0.5
    tensors = named("x", {"weight": weight, "weight_scale_inv": scales})
    (value,) = read_all(checkpoint(tmp_path, tensors, FP8 | {"weight_block_size": list(block)})).values()
    expected = weight.float() * scales[torch.arange(outputs)[:, None] // rows, torch.arange(inputs) // columns]
    assert isinstance(value, Tensor)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("shape", [(), (1,), (6,), (6, 1)])
@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
def test_scales_of_all_or_of_outputs(shape: tuple[int, ...], name: str, tmp_path: Path) -> None:
    weight, scale = draw(6, 40), torch.rand(shape) + 0.5
    tensors = named(
        "x", {"weight": weight, name: scale, "input_scale": torch.ones(()), "activation_scale": torch.ones(1)}
    )
    values = read_all(checkpoint(tmp_path, tensors, FP8 | {"weight_block_size": None}))
    assert values.keys() == {"x.weight"}
    torch.testing.assert_close(values["x.weight"], weight.float() * scale.view(-1, 1))


def test_modules_that_were_not_converted(tmp_path: Path) -> None:
    head = torch.ones(3, 5, dtype=torch.bfloat16)
    tensors = {"lm_head.weight": head, **named("x", {"weight": draw(4, 4), "weight_scale_inv": torch.ones(1, 1)})}
    source = checkpoint(tmp_path, tensors, FP8 | {"modules_to_not_convert": ["lm_head"]})
    assert torch.equal(read_all(source)["lm_head.weight"], head)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x.weight": draw(4, 4)}, r"x\.weight_scale_inv is missing; expected .* \[1, 1\]"),
        ({"x.weight_scale_inv": torch.ones(1, 1)}, r"x\.weight is missing; expected float8_e4m3fn"),
        (
            {"x.weight": torch.ones(4, 4), "x.weight_scale_inv": torch.ones(1, 1)},
            r"x\.weight is float32 \[4, 4\]; expected float8_e4m3fn",
        ),
        (
            {"x.weight": draw(200, 4), "x.weight_scale_inv": torch.ones(1, 2)},
            r"x\.weight_scale_inv is float32 \[1, 2\]; expected .*\[200, 1\] or \[2, 1\]",
        ),
        (
            {"experts.up": draw(4, 4), "experts.up_scale_inv": torch.ones(1, 1)},
            r"experts\.up is stored as FP8, but not as",
        ),
    ],
)
def test_tensors_that_do_not_fit(tensors: dict[str, Tensor], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, tensors, FP8).headers()


@pytest.mark.parametrize("size", [[128], [0, 128], "128x128", 128])
def test_sizes_that_are_none(size: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"blocks of .* are not supported; expected \[outputs, inputs\]"):
        checkpoint(tmp_path, {"x": torch.ones(1)}, FP8 | {"weight_block_size": size})
