"""The kernel that cuBLAS is compared with multiplies."""

import importlib

import pytest
import torch


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (1024, 4), (1500, 9), (3000, 6)])
def test_it_is_a_row_times_a_matrix(device: torch.device, inputs: int, outputs: int) -> None:
    pytest.importorskip("triton", reason="no Triton")
    kernel = importlib.import_module("bench.gpu.row_product")
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, inputs, generator=random) for rows in (1, outputs))
    found = kernel.row_product(x.to(device), weight.to(device))
    torch.testing.assert_close(found.cpu(), x @ weight.T, rtol=1e-4, atol=1e-4)
