"""A linear layer in Triton equals torch's, and no bit of a row depends on the other rows or on their number."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

linear = pytest.importorskip("unifiedserve.device.triton.linear", reason="no Triton")

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
SHAPES = [(130, 40), (8, 130), (150, 140)]  # with few inputs a part, the first and last ones come in parts
ROWS = [1, 7, 64, 140]


@pytest.fixture(params=TOLERANCE, ids=str, scope="module")
def dtype(request: pytest.FixtureRequest, device: torch.device) -> torch.dtype:
    if device.type == "cpu" and request.param == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies no bfloat16")
    return request.param


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parts have so few inputs that layers for the interpreter come in several."""
    monkeypatch.setattr(linear, "LEAST_INPUTS", 64)


def layer(shape: tuple[int, int], dtype: torch.dtype, seed: int, rows: int = max(ROWS)) -> list[Tensor]:
    """Return rows, weights and a bias."""
    inputs, outputs = shape
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(*size, generator=random).to(dtype) for size in ((rows, inputs), (outputs, inputs), (outputs,))]


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_a_linear_layer(device: torch.device, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x, weight, bias = layer(shape, dtype, 0)
    apart = torch.full((shape[1], shape[0] + 24), torch.nan, dtype=dtype)  # as where rows of a checkpoint have gaps
    apart[:, : shape[0]] = weight
    for own in (bias, None):
        there = None if own is None else own.to(device)
        found = linear.linear(x.to(device), apart.to(device)[:, : shape[0]], there).cpu()
        expected = x.double() @ weight.double().T + (0 if own is None else own.double())
        scale = float(expected.abs().max())
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE[dtype] * scale)


@pytest.mark.usefixtures("in_order", "short_parts")
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.sampled_from(SHAPES),
    rows=st.sampled_from(ROWS[:-1]) | st.integers(1, 130),
    first=st.integers(0, 10),
    seed=st.integers(0, 2**32),
)
@example((150, 140), 7, 60, 0)
def test_rows_are_the_same_in_any_company(
    device: torch.device, dtype: torch.dtype, shape: tuple[int, int], rows: int, first: int, seed: int
) -> None:
    x, weight, bias = (tensor.to(device) for tensor in layer(shape, dtype, seed))
    together = linear.linear(x, weight, bias)
    assert torch.equal(linear.linear(x[first : first + rows], weight, bias), together[first : first + rows])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_prompts_rows_are_those_of_decode(dtype: torch.dtype) -> None:
    """Of a 7B model's layers, in a chunk of 2048."""
    for shape in ((3584, 4608), (18944, 3584), (3584, 37888)):
        x, weight, bias = (tensor.cuda() for tensor in layer(shape, dtype, 0, 2048))
        together = linear.linear(x, weight, bias)
        for rows in (1, 7, 64, 500):
            assert torch.equal(linear.linear(x[100 : 100 + rows], weight, bias), together[100 : 100 + rows])


@pytest.mark.usefixtures("in_order", "short_parts")
def test_another_split_has_other_bits(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what is compared above would differ if parts followed from the number of rows."""
    x, weight, bias = (tensor.to(device) for tensor in layer((150, 140), torch.float32, 0))
    in_parts = linear.linear(x, weight, bias)
    monkeypatch.setattr(linear, "part_inputs", lambda inputs, *_: inputs)
    whole = linear.linear(x, weight, bias)
    torch.testing.assert_close(in_parts, whole)
    assert not torch.equal(in_parts, whole)


@pytest.mark.parametrize(
    ("inputs", "outputs", "parts"),
    [(3584, 4608, 3), (18944, 3584, 4), (3584, 37888, 1), (1280, 1280, 1), (40, 8, 1)],
)
def test_layers_with_few_outputs_come_in_parts(inputs: int, outputs: int, parts: int) -> None:
    part = linear.part_inputs(inputs, outputs, torch.bfloat16)
    assert part % linear.TILES[torch.bfloat16].inputs == 0
    assert -(-inputs // part) == parts


@pytest.mark.parametrize(
    "bad",
    [
        lambda x, weight, bias: (x[:, :-1], weight, bias),
        lambda x, weight, bias: (x, weight, bias[:-1]),
        lambda x, weight, bias: (x.half(), weight, bias),
        lambda x, weight, bias: (x.double(), weight.double(), bias.double()),
        lambda x, weight, bias: (x, weight.T.contiguous().T, bias),
    ],
)
def test_what_does_not_fit_is_refused(device: torch.device, bad: Any) -> None:
    with pytest.raises(ValueError, match=r"do not fit|must be"):
        linear.linear(*bad(*(tensor.to(device) for tensor in layer((40, 8), torch.float32, 0, 3))))
