"""With --batch-invariant a GPU's kernels give a language model's logits to the bit, alone and in any company."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
import torch
from reference import transformers
from small_qwen2 import small_qwen2
from torch import Tensor
from torch.nn import functional

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch, Span
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, DecodeRow, Device
from unifiedserve.device.base import LinearWeights
from unifiedserve.device.cuda import CudaDevice
from unifiedserve.device.cuda.kernels import CudaKernels
from unifiedserve.device.cuda.vision import CudaVision
from unifiedserve.device.operators import Multiply
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of

operators = pytest.importorskip("unifiedserve.device.triton.operators", reason="no Triton")
linear = pytest.importorskip("unifiedserve.device.triton.linear")

PAGE, PAGES = 16, 24
PROMPTS = [21, 6]
Step = list[tuple[int, int, int]]  # of which prompts which tokens [start, stop)

pytestmark = pytest.mark.usefixtures("in_order")


class Interpreted:
    """A GPU's kernels over the host's memory, in Triton's interpreter."""

    torch = torch.device("cpu")
    place = "host"

    def __init__(self, multiply: Multiply) -> None:
        parts = operators.TritonAttention(self.upload, in_order=True), operators.TritonPointwise(), multiply
        self.kernels = CudaKernels(cast(Device, self), *parts, Immediate, batch_invariant=True)

    def upload(self, host: Tensor) -> Tensor:
        return host


class Immediate:
    """A `SideStream` whose work is done when it is issued; what is recorded is done again."""

    def use(self) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        return work

    def mark(self) -> "Immediate":
        return self

    def wait(self) -> None:
        pass

    def download(self, tokens: Tensor) -> "Immediate":
        return self


class Model:
    """A small model on a device, and the keys and values of its prompts, which are the same in any company."""

    def __init__(self, device: Any, kv: KVCache, dtype: torch.dtype) -> None:
        made = small_qwen2(97, layers=1)
        self.causal = made.to(device.torch, dtype)
        self.device, self.kv = device, kv
        run = device.kernels.runner(self.causal.get_decoder(), dtype)
        assert run is not None
        self._run, self._head = run, device.kernels.head(self.causal.get_output_embeddings())
        self.prompts = [torch.randint(0, 97, (n,), generator=torch.Generator().manual_seed(n)) for n in PROMPTS]
        self.pages = [list(range(12 * number, 12 * number + 12)) for number in range(len(PROMPTS))]

    @torch.inference_mode()
    def logits(self, steps: list[Step]) -> list[Tensor]:
        """Return each prompt's logits [tokens, vocab], those of a step being computed together."""
        found: list[list[Tensor]] = [[] for _ in self.prompts]
        for step in steps:
            spans = [Span(self.pages[number][: -(-stop // PAGE)], start, stop) for number, start, stop in step]
            tokens = torch.cat([self.prompts[number][start:stop] for number, start, stop in step])
            places = torch.cat([torch.arange(start, stop) for _, start, stop in step])
            upload = self.device.upload
            embeds = self.causal.get_input_embeddings()(upload(tokens))
            hidden = self._run(embeds, upload(places[None]), RaggedBatch.build(spans, PAGE), self.kv)
            parts = self._head(hidden).cpu().split([stop - start for _, start, stop in step])
            for (number, *_), part in zip(step, parts, strict=True):
                found[number].append(part)
        return [torch.cat(parts) for parts in found]

    def decoded(self, rows: int) -> list[Tensor]:
        """Return the logits after each prompt's last token, of a recorded step for so many rows."""
        decoder = self.device.kernels.decoder(self.causal, self.kv, rows, 12 * PAGE, 1)
        assert decoder is not None
        seen: list[Tensor] = []

        def draw(logits: Tensor) -> Tensor:
            seen.append(logits.cpu().clone())
            return logits.argmax(-1)

        asked = [
            DecodeRow(number, int(prompt[-1]), len(prompt) - 1, 0, self.pages[number][: -(-len(prompt) // PAGE)])
            for number, prompt in enumerate(self.prompts)
        ]
        decoder.launch(asked, draw).wait()
        return list(seen[0])


@pytest.fixture
def kv(device: torch.device) -> Iterator[KVCache]:
    there = CPU if device.type == "cpu" else CudaDevice(EngineConfig())
    layout = KVLayout(1, PAGE, 2, 16, name_of(dtype_on(device)))
    pool = PagePool.create(f"test-company-{uuid.uuid4().hex[:12]}", PAGES, layout.page_bytes, there.place)
    yield KVCache(pool, layout, device=there)
    pool.close()
    pool.unlink()


def dtype_on(device: torch.device) -> torch.dtype:
    """Return the interpreter's type, which multiplies no bfloat16, or a GPU's."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def open_device(device: torch.device) -> Any:
    return Interpreted(linear.linear) if device.type == "cpu" else CudaDevice(EngineConfig.of(batch_invariant=True))


def test_logits_are_the_same_in_any_company(device: torch.device, kv: KVCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole prompts alone, of chunks beside others, and of recorded steps for more rows than there are."""
    monkeypatch.setattr(linear, "LEAST_INPUTS", 16)  # so that inputs come in parts
    model = Model(open_device(device), kv, dtype_on(device))
    alone = model.logits([[(0, 0, 21)], [(1, 0, 6)]])
    together = model.logits([[(0, 0, 13), (1, 0, 5)], [(1, 5, 6), (0, 13, 21)]])
    for found, expected in zip(together, alone, strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(model.decoded(5), alone, strict=True):
        assert torch.equal(found, expected[-1])


def by_number_of_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply as libraries do: few rows in more parts than many."""
    if len(x) > 4:
        return functional.linear(x.double(), weight.double(), None if bias is None else bias.double()).float()
    half = x.shape[1] // 2
    return functional.linear(x[:, :half], weight[:, :half], bias) + functional.linear(x[:, half:], weight[:, half:])


def test_products_by_the_number_of_rows_have_other_bits(device: torch.device, kv: KVCache) -> None:
    """So what is compared above would differ if a product had another order for fewer rows."""
    if device.type != "cpu":
        pytest.skip("the interpreter shows it")
    model = Model(Interpreted(by_number_of_rows), kv, torch.float32)
    whole, last = (
        model.logits(steps)[1] for steps in ([[(0, 0, 1)], [(1, 0, 6)]], [[(1, 0, 5), (0, 0, 1)], [(1, 5, 6)]])
    )
    torch.testing.assert_close(last, whole, rtol=1e-4, atol=1e-4)
    assert not torch.equal(last[-1], whole[-1])


def test_other_models_are_refused(device: torch.device) -> None:
    config = transformers.GPT2Config(vocab_size=9, n_embd=16, n_layer=1, n_head=2)
    other = transformers.GPT2Model(config)
    with pytest.raises(ConfigError, match="--batch-invariant: transformers runs this gpt2, with products"):
        open_device(device).kernels.runner(other, torch.float32)


def test_the_encoders_products_are_the_same_ones(device: torch.device) -> None:
    """Those that a tower asks for, with what is behind them."""
    asked: list[tuple[int, ...]] = []

    def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        asked.append(tuple(weight.shape))
        return functional.linear(x, weight, bias)

    kernels = CudaVision(operators.TritonPointwise(), multiply)
    x, summand = torch.ones(3, 8, device=device), torch.ones(3, 4, device=device)
    layer = LinearWeights(torch.ones(4, 8, device=device), torch.zeros(4, device=device))
    assert torch.equal(kernels.linear(x, layer), torch.full_like(summand, 8))
    assert torch.equal(kernels.linear(x, layer, "gelu"), functional.gelu(torch.full_like(summand, 8)))
    assert torch.equal(kernels.linear_plus(x, layer, summand), torch.full_like(summand, 9))
    assert asked == [(4, 8)] * 3
