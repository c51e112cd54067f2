"""Plain matrices quantised here: how far from their values they are, and which are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from stored_weights import check_value
from torch import Tensor

from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.on_the_fly import DEFAULTS, OF_EVEN_ROWS, OnTheFly
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import Scheme, fitting

BUNDLED = Path(__file__).resolve().parents[2] / "unifiedserve" / "bundled_model" / "model.safetensors"
SCHEMES = [Scheme(bits, group) for bits in (4, 8) for group in (16, 32, 64, 128)]


def draw(outputs: int, inputs: int, seed: int = 0) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


def relative_error(weight: Tensor, matrix: QuantizedMatrix) -> float:
    return float((matrix.dequantize() - weight).norm() / weight.norm())


def nearest_by_extremes(weight: Tensor, scheme: Scheme) -> Tensor:
    """The textbook's: each group's range, which includes 0, in equal steps, and every value to the nearest one."""
    groups = weight.view(len(weight), -1, scheme.group)
    low, high = groups.amin(-1, keepdim=True).clamp(max=0), groups.amax(-1, keepdim=True).clamp(min=0)
    steps = 2**scheme.bits - 1
    return torch.fake_quantize_per_channel_affine(
        groups.flatten(0, 1),
        scale := ((high - low) / steps).flatten(),
        (-low.flatten() / scale).round().clamp(0, steps).int(),
        axis=0,
        quant_min=0,
        quant_max=steps,
    ).view_as(weight)


@settings(max_examples=40)
@given(
    outputs=st.integers(1, 9),
    groups=st.integers(1, 4),
    scheme=st.sampled_from(SCHEMES),
    deviation=st.sampled_from([1e-6, 0.02, 1.0, 1e4]),
    mean=st.sampled_from([-3.0, 0.0, 3.0]),
    seed=st.integers(0, 99),
)
def test_no_value_is_far_off(
    outputs: int, groups: int, scheme: Scheme, deviation: float, mean: float, seed: int
) -> None:
    """By no more than half a step, but for those that the clipped range leaves out: a fifth of the largest at most."""
    weight = (draw(outputs, groups * scheme.group, seed) + mean) * deviation
    matrix = quantize(weight, scheme)
    check_value(list(weight.shape), scheme, matrix)
    values = weight.view(outputs, groups, -1)
    reach = torch.maximum(values.amax(-1), torch.zeros(())) - torch.minimum(values.amin(-1), torch.zeros(()))
    bound = reach / 15 + 0.21 * reach if scheme.bits == 4 else values.abs().amax(-1) / 127 * 0.501
    off = (matrix.dequantize() - weight).abs().view(outputs, groups, -1).amax(-1)
    assert bool((off <= bound).all())


@pytest.mark.parametrize("group", [32, 64, 128])
def test_4_bits_are_better_than_by_extremes(group: int) -> None:
    weight, scheme = draw(256, 512), Scheme(4, group)
    plain = float((nearest_by_extremes(weight, scheme) - weight).norm() / weight.norm())
    assert relative_error(weight, quantize(weight, scheme)) < 0.975 * plain


@pytest.mark.parametrize(("scheme", "limit"), [(DEFAULTS[4], 0.085), (DEFAULTS[8], 0.008)])
def test_error_of_the_bundled_model(scheme: Scheme, limit: float) -> None:
    weights = {name: tensor.float() for name, tensor in load_file(BUNDLED).items() if ".layers." in name}
    matrices = [tensor for tensor in weights.values() if tensor.dim() == 2]
    assert len(matrices) == 42
    for weight in matrices:
        group = max(g for g in (32, 64, 128) if g <= scheme.group and weight.shape[1] % g == 0)
        assert relative_error(weight, quantize(weight, scheme._replace(group=group))) < limit


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [0.0, 2.5, -2.5])
def test_groups_of_one_value(value: float, scheme: Scheme) -> None:
    weight = torch.full((3, 128), value)
    torch.testing.assert_close(quantize(weight, scheme).dequantize(), weight)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_quantised_already_stays_as_it_is(scheme: Scheme) -> None:
    """Values that are codes times a scale, with the largest range that there is, come back."""
    codes = torch.randint(0, 2**scheme.bits, (8, 256), generator=torch.Generator().manual_seed(0))
    codes[:, ::16], codes[:, 1::16] = 2**scheme.bits - 1, 1 if scheme.bits == 8 else 0
    weight = (codes - 2 ** (scheme.bits - 1)).clamp(min=-127) * 0.125
    torch.testing.assert_close(quantize(weight, scheme).dequantize(), weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_do_not_depend_on_each_other(bits: int) -> None:
    """Whatever part of a matrix is quantised at a time."""
    weight, scheme = draw(700, 1024), DEFAULTS[bits]
    whole, row = quantize(weight, scheme), quantize(weight[600:601], scheme)
    for one, other in zip(whole[:3], row[:3], strict=True):
        assert torch.equal(one[600:601], other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_any_dtype(dtype: torch.dtype) -> None:
    weight = draw(4, 64).to(dtype)
    for one, other in zip(quantize(weight, DEFAULTS[4])[:3], quantize(weight.float(), DEFAULTS[4])[:3], strict=True):
        assert torch.equal(one, other)


def test_which_tensors_are_quantised(tmp_path: Path) -> None:
    tensors = {
        "a.weight": draw(4, 256),
        "a.bias": torch.ones(128),
        "b.weight": draw(4, 192).bfloat16(),
        "c.weight": draw(4, 96),
        "d.weight": draw(4, 48),
        "odd.weight": draw(4, 40),
        "ids.weight": torch.zeros(4, 128, dtype=torch.int64),
        "conv.weight": draw(4, 256).view(4, 2, 128),
        "embed.weight": draw(4, 128),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    files = SafetensorsFiles(tmp_path)
    source = OnTheFly(files, lambda name: None if name.startswith("embed") else DEFAULTS[8])
    schemes = {
        f"{name}.weight": Scheme(8, group, zero=128) for name, group in zip("abcd", (128, 64, 32, 16), strict=True)
    }
    headers = source.headers()
    assert headers == [header._replace(scheme=schemes.get(header.name)) for header in files.headers()]
    values = dict(source.read())
    assert values.keys() == tensors.keys()
    for header in headers:
        value = values[header.name]
        check_value(header.shape, header.scheme, value)
        if isinstance(value, QuantizedMatrix):
            assert relative_error(tensors[header.name].float(), value) < 0.01
        else:
            assert torch.equal(value, tensors[header.name])


@pytest.mark.parametrize(
    ("inputs", "group"),
    [(64, 64), (192, 192), (1280, 1280), (65_536, 65_536), (65_600, 64), (80, 16), (3420, None)],
)
def test_a_row_has_one_scale(inputs: int, group: int | None) -> None:
    """Where kernels add up all of its products, which registers hold four inputs of at a time."""
    assert fitting(OF_EVEN_ROWS[8], inputs) == (group and Scheme(8, group, zero=128))


def test_groups_are_never_larger_than_asked_for(tmp_path: Path) -> None:
    save_file({"a.weight": draw(4, 256)}, tmp_path / "model.safetensors")
    (header,) = OnTheFly(SafetensorsFiles(tmp_path), lambda name: DEFAULTS[4]).headers()
    assert header.scheme == Scheme(4, 32)


def best_errors(values: NDArray[np.float64], importance: NDArray[np.float64]) -> float:
    """Return the least weighted squared error of a group's codes out of five ranges, by numpy's least squares."""
    centre, reach = (values.max() + values.min()) / 2, (values.max() - values.min()) / 2
    errors = []
    for share in (1.0, 0.95, 0.9, 0.85, 0.8):
        steps = (values - centre) * 7.5 / (reach * share) + 7.5
        assume(np.abs(steps % 1 - 0.5).min() > 1e-5)  # else float32 may round to the other code
        codes = np.clip(np.round(steps), 0, 15)
        root = np.sqrt(importance)
        line, *_ = np.linalg.lstsq(np.stack([codes, np.ones_like(codes)], 1) * root[:, None], values * root)
        errors.append((importance * (codes * line[0] + line[1] - values) ** 2).sum())
    return float(min(errors))


@settings(max_examples=40)
@given(
    group=st.sampled_from([16, 32, 64, 128]),
    power=st.sampled_from([0, 1, 4, 8]),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 99),
)
def test_errors_of_important_inputs_are_least(group: int, power: int, unit: float, seed: int) -> None:
    """As numpy's weighted least squares of the same ranges have it, whatever the unit of importance."""
    weight, scheme = draw(3, 2 * group, seed), Scheme(4, group)
    importance = draw(1, 2 * group, seed + 1000)[0].abs() ** power * unit
    matrix = quantize(weight, scheme, importance)
    check_value(list(weight.shape), scheme, matrix)
    off = ((matrix.dequantize() - weight).square() * importance).view(3, 2, group).sum(-1)
    for row in range(3):
        for part in range(2):
            own = slice(part * group, (part + 1) * group)
            least = best_errors(weight[row, own].double().numpy(), importance[own].double().numpy())
            assert off[row, part] == pytest.approx(least, rel=1e-3, abs=1e-9 * unit)


@pytest.mark.parametrize("scheme", [each for each in SCHEMES if each.bits == 4])
@pytest.mark.parametrize("importance", [torch.zeros(256), torch.ones(256), torch.full((256,), 3e-9)])
def test_inputs_that_are_alike_are_as_without_importance(scheme: Scheme, importance: Tensor) -> None:
    weight = draw(5, 256)
    for one, other in zip(quantize(weight, scheme, importance)[:3], quantize(weight, scheme)[:3], strict=True):
        assert torch.equal(one, other)


def test_a_group_without_importance_is_as_if_all_were_alike() -> None:
    weight, importance = draw(5, 64), draw(1, 64)[0].abs()
    importance[32:] = 0
    for one, other in zip(
        quantize(weight, DEFAULTS[4], importance)[1:3], quantize(weight, DEFAULTS[4])[1:3], strict=True
    ):
        assert torch.equal(one[:, 1], other[:, 1])
        assert not torch.equal(one[:, 0], other[:, 0])


@pytest.mark.parametrize("used", [1, 2, 31])
def test_inputs_that_a_text_never_used_keep_their_values(used: int) -> None:
    """Those of others are nearest; the rest are what codes of the same range can be."""
    weight, importance = draw(64, 64), torch.zeros(64)
    importance[:used], importance[-used:] = 1, 3
    matrix = quantize(weight, DEFAULTS[4], importance)
    assert relative_error(weight, matrix) < 0.13


def test_8_bits_do_without_importance() -> None:
    weight, importance = draw(5, 256), draw(1, 256)[0].abs()
    for one, other in zip(
        quantize(weight, DEFAULTS[8], importance)[:3], quantize(weight, DEFAULTS[8])[:3], strict=True
    ):
        assert torch.equal(one, other)
