"""GPTQ checkpoints: both versions, 4 and 8 bits, orders of inputs, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_weights import GPTQ, Drawn, checkpoint, named, read_all

from unifiedserve.errors import ConfigError
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme


def assert_worth(value: torch.Tensor | QuantizedMatrix, drawn: Drawn) -> None:
    values = value.dequantize() if isinstance(value, QuantizedMatrix) else value
    torch.testing.assert_close(values.double(), drawn.values(), rtol=1e-6, atol=0)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outputs=st.integers(1, 3),
    groups=st.integers(1, 3),
    group=st.sampled_from([32, 128]),
    bits=st.sampled_from([4, 8]),
    version=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)
def test_values(outputs: int, groups: int, group: int, bits: int, version: int, seed: int, tmp_path: Path) -> None:
    drawn = Drawn(8 * outputs, groups * group, group, bits, seed)
    config = GPTQ | {"bits": bits, "group_size": group, "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
    (matrix,) = read_all(checkpoint(tmp_path, named("x", drawn.gptq(version)), config)).values()
    assert isinstance(matrix, QuantizedMatrix)
    assert matrix.scheme == Scheme(bits, group)
    assert_worth(matrix, drawn)


@pytest.mark.parametrize("version", [1, 2])
def test_symmetric_zeros_are_in_the_middle_however_they_are_stored(version: int, tmp_path: Path) -> None:
    drawn = Drawn(8, 64, 32).symmetric()
    config = GPTQ | {"sym": True, "checkpoint_format": "gptq"}
    assert_worth(read_all(checkpoint(tmp_path, named("x", drawn.gptq(version)), config))["x.weight"], drawn)


def test_without_an_index(tmp_path: Path) -> None:
    drawn = Drawn(8, 64, 32)
    tensors = drawn.gptq()
    del tensors["g_idx"]
    assert_worth(read_all(checkpoint(tmp_path, named("x", tensors), GPTQ))["x.weight"], drawn)


def test_inputs_in_another_order_become_a_plain_tensor(tmp_path: Path) -> None:
    drawn = Drawn(8, 96, 32)
    np.random.default_rng(1).shuffle(drawn.group_of)
    source = checkpoint(tmp_path, named("x", drawn.gptq()), GPTQ | {"desc_act": True})
    assert [header.scheme for header in source.headers()] == [None]
    assert_worth(read_all(source)["x.weight"], drawn)


def test_one_group_has_no_order(tmp_path: Path) -> None:
    drawn = Drawn(8, 96, 96)
    source = checkpoint(tmp_path, named("x", drawn.gptq()), GPTQ | {"desc_act": True, "group_size": -1})
    assert [header.scheme for header in source.headers()] == [Scheme(4, 32)]
    assert_worth(read_all(source)["x.weight"], drawn)


def test_an_order_of_which_the_config_does_not_tell(tmp_path: Path) -> None:
    drawn = Drawn(8, 96, 32)
    drawn.group_of = drawn.group_of[::-1].copy()
    source = checkpoint(tmp_path, named("x", drawn.gptq()), GPTQ)
    assert source.headers()
    with pytest.raises(ConfigError, match=r"x\.weight: its g_idx puts inputs into other groups than their neighbours"):
        list(source.read())


def test_an_index_of_groups_that_there_are_not(tmp_path: Path) -> None:
    tensors = Drawn(8, 96, 32).gptq() | {"g_idx": torch.full((96,), 3, dtype=torch.int32)}
    source = checkpoint(tmp_path, named("x", tensors), GPTQ | {"desc_act": True})
    with pytest.raises(ConfigError, match=r"x\.weight: its g_idx names groups other than its 3"):
        list(source.read())


def test_modules_with_settings_of_their_own(tmp_path: Path) -> None:
    wide, narrow, plain = Drawn(8, 128, 64, bits=8), Drawn(8, 128, 32), torch.ones(4, 4)
    tensors = named("a.down", wide.gptq()) | named("a.up", narrow.gptq()) | {"v.weight": plain}
    config = GPTQ | {"dynamic": {"-:v": {}, r"+:.*\.down": {"bits": 8, "group_size": 64}}}
    values = read_all(checkpoint(tmp_path, tensors, config))
    assert_worth(values["a.down.weight"], wide)
    assert_worth(values["a.up.weight"], narrow)
    assert torch.equal(values["v.weight"], plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint_format": "marlin"}, "GPTQ stored as 'marlin' is not supported; only 'gptq' and 'gptq_v2' are"),
        ({"bits": 3}, r"x\.weight: GPTQ of 3 bits is not supported; only of 4 or 8 bits"),
        ({"bits": None}, r"x\.weight: GPTQ of None bits is not supported"),
        ({"group_size": 48}, r"x\.weight: groups of 48 do not divide its 64 inputs"),
        ({"bits": 8}, r"x\.weight: groups of 64 do not divide its 32 inputs"),
        ({"dynamic": {"(": {}}}, r"'\(' is no pattern of names"),
    ],
)
def test_config_that_does_not_fit(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, named("x", Drawn(8, 64, 64).gptq()), GPTQ | {"group_size": 64} | change).headers()


@pytest.mark.parametrize(
    ("part", "tensor", "message"),
    [
        ("scales", None, r"x\.scales is missing; expected"),
        ("g_idx", None, r"x\.g_idx is missing; expected int32 or int64 \[64\]"),
        ("g_idx", torch.zeros(32, dtype=torch.int32), r"x\.g_idx is int32 \[32\]; expected int32 or int64 \[64\]"),
        ("qzeros", torch.zeros(2, 2, dtype=torch.int32), r"x\.qzeros is int32 \[2, 2\]; expected int32 \[2, 1\]"),
    ],
)
def test_tensors_that_do_not_fit(part: str, tensor: torch.Tensor | None, message: str, tmp_path: Path) -> None:
    tensors = Drawn(8, 64, 32).gptq()
    del tensors[part]
    if tensor is not None:
        tensors[part] = tensor
    with pytest.raises(ConfigError, match=message):
        checkpoint(tmp_path, named("x", tensors), GPTQ | {"desc_act": True}).headers()
