"""Uploads wait for no work: what CUDA would copy in the stream's turn is page-locked first."""

from typing import Any

import pytest
import torch
from torch import Tensor

from unifiedserve.device import upload_behind
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.sampling import adjust

AT_ONCE = 64 << 10  # bytes


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that there is a GPU, and return what uploads do."""
    done: list[str] = []

    def pin(host: Tensor) -> Tensor:
        done.append("page-lock")
        return host

    def copy(host: Tensor, device: torch.device, *, non_blocking: bool = False) -> Tensor:
        done.append(f"copy to {device.type}" + ("" if non_blocking else " and wait"))
        return host

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    monkeypatch.setattr(Tensor, "to", copy)
    return done


@pytest.mark.parametrize(("size", "expected"), [(AT_ONCE, []), (AT_ONCE + 1, ["page-lock"])])
def test_large_uploads_to_a_gpu_are_page_locked(size: int, expected: list[str], calls: list[str]) -> None:
    upload_behind(torch.zeros(size, dtype=torch.uint8), torch.device("cuda:0"))
    assert calls == [*expected, "copy to cuda"]


def test_the_host_is_where_memory_is_already(calls: list[str]) -> None:
    upload_behind(torch.zeros(AT_ONCE + 1, dtype=torch.uint8), torch.device("cpu"))
    assert calls == ["copy to cpu"]


def test_penalties_of_many_tokens_wait_for_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: list[int] = []

    def upload(host: Tensor, device: torch.device) -> Tensor:
        uploaded.append(host.nbytes)
        return host

    monkeypatch.setattr(adjust, "upload_behind", upload)
    params, tokens = [SamplingParams(temperature=0, repetition_penalty=1.1)], torch.arange(AT_ONCE)
    given: dict[str, Any] = {"allowed": {}, "seen": {0: tokens}}
    logits = torch.ones(1, AT_ONCE)
    adjusted = adjust.adjust(logits, params, [[0]], [0], (), **given)
    assert uploaded == [tokens.nbytes, logits.nbytes]
    torch.testing.assert_close(adjusted, logits / 1.1)
