"""A device that decodes by itself gives the logits of steps that the host plans, whoever joins, idles and leaves."""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from deferred import DeferredDevice
from reference import transformers
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch, Span
from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.device.base import Decoder, DecodeRow
from unifiedserve.device.cpu import CPU
from unifiedserve.device.cuda import CudaDevice
from unifiedserve.memory.kv_cache import KVCache, KVLayout

PAGE, PAGES, ROWS, LONGEST, VOCAB = 4, 200, 9, 60, 97
NAMES = ["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=NAMES)
def device(request: pytest.FixtureRequest) -> Device:
    return CudaDevice(EngineConfig()) if request.param == "cuda" else DeferredDevice()


@pytest.fixture(scope="module")
def model(device: Device) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    made = transformers.Qwen2ForCausalLM(config).eval().requires_grad_(False)
    for module in made.modules():
        for holder in (module._parameters, module._buffers):
            for name, value in holder.items():
                if value is not None:
                    there = device.upload(value.data)
                    holder[name] = torch.nn.Parameter(there, False) if holder is module._parameters else there
    return made


@pytest.fixture
def kv(device: Device) -> Iterator[KVCache]:
    layout = KVLayout(2, PAGE, 2, 16, torch.float32)
    pool = PagePool.create(f"test-decoder-{uuid.uuid4().hex[:12]}", PAGES, layout.page_bytes, device.place)
    yield KVCache(pool, layout, device=device)
    pool.close()
    pool.unlink()


class Sequence:
    """Tokens so far, all but the last of which are in the cache."""

    def __init__(self, tokens: list[int], pages: list[int]) -> None:
        self.tokens, self.pages = tokens, pages
        self.row: int | None = None

    def used_pages(self) -> list[int]:
        return self.pages[: -(-len(self.tokens) // PAGE)]


def planned(model: Any, device: Device, kv: KVCache, sequences: list[Sequence], starts: list[int]) -> Tensor:
    """Return the logits after the last tokens, of a step that takes all tokens from `starts` on."""
    spans = [Span(s.used_pages(), start, len(s.tokens), 1) for s, start in zip(sequences, starts, strict=True)]
    batch = RaggedBatch.build(spans, PAGE)
    new = [(s.tokens[at], at) for s, start in zip(sequences, starts, strict=True) for at in range(start, len(s.tokens))]
    tokens, places = (torch.tensor(part) for part in zip(*new, strict=True))
    run = device.kernels.runner(model.get_decoder(), torch.float32)
    assert run is not None
    with torch.inference_mode():
        embeds = model.get_input_embeddings()(device.upload(tokens))
        hidden = run(embeds, device.upload(places[None]), batch, kv)
        return device.kernels.head(model.get_output_embeddings())(hidden).cpu()


@pytest.mark.parametrize("seed", range(3))
def test_logits_are_those_of_planned_steps(model: Any, device: Device, kv: KVCache, seed: int) -> None:
    chance = random.Random(seed)
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    assert decoder.rows == ROWS
    free_pages, free_rows = list(range(PAGES)), list(range(ROWS))
    chance.shuffle(free_pages)
    running: list[Sequence] = []
    for _ in range(25):
        while free_rows and chance.random() < 0.6:
            pages = [free_pages.pop() for _ in range(-(-LONGEST // PAGE))]
            running.append(Sequence([chance.randrange(VOCAB) for _ in range(chance.randrange(2, 30))], pages))
            running[-1].row = free_rows.pop(chance.randrange(len(free_rows)))
            planned(model, device, kv, [Sequence(running[-1].tokens[:-1], pages)], [0])
            device.fence()
        chosen = [s for s in running if chance.random() < 0.8] or running[:1]
        if chosen:
            _step(model, device, kv, decoder, chosen)
        for sequence in [s for s in running if len(s.tokens) == LONGEST or chance.random() < 0.1]:
            running.remove(sequence)
            free_pages += sequence.pages
            free_rows.append(sequence.row or 0)
            decoder.forget(sequence.row or 0)


def _step(model: Any, device: Device, kv: KVCache, decoder: Decoder, chosen: list[Sequence]) -> None:
    """Take a step by the device, then the same by a plan."""
    seen: list[Tensor] = []

    def draw(logits: Tensor) -> Tensor:
        seen.append(logits.clone())
        return logits.argmax(-1)

    rows = [DecodeRow(s.row or 0, s.tokens[-1], len(s.tokens) - 1, 0, s.used_pages()) for s in chosen]
    tokens = decoder.launch(rows, draw).tokens()
    expected = planned(model, device, kv, chosen, [len(s.tokens) - 1 for s in chosen])
    torch.testing.assert_close(seen[0].cpu(), expected, rtol=1e-4, atol=1e-4)
    assert tokens == expected.argmax(-1).tolist()
    for sequence, token in zip(chosen, tokens, strict=True):
        sequence.tokens.append(token)


def test_it_goes_on_with_what_it_has_drawn(model: Any, device: Device, kv: KVCache) -> None:
    """Two steps at once, the second of which is told no token."""
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    sequence = Sequence([5, 6, 7, 8], list(range(20)))
    planned(model, device, kv, [Sequence(sequence.tokens[:-1], sequence.pages)], [0])
    device.fence()
    steps = []
    for number in range(6):
        token = sequence.tokens[-1] if number == 0 else None
        row = DecodeRow(0, token, len(sequence.tokens) - 1 + number, 0, sequence.pages[: 2 + number])
        steps.append(decoder.launch([row], lambda logits: logits.argmax(-1)))
    drawn = [step.tokens()[0] for step in steps]
    for token in drawn:
        expected = planned(model, device, kv, [sequence], [0])
        assert token == int(expected.argmax())
        sequence.tokens.append(token)


def test_too_few_pages_are_refused(model: Any, device: Device, kv: KVCache) -> None:
    decoder = device.kernels.decoder(model, kv, ROWS, LONGEST, 1)
    assert decoder is not None
    with pytest.raises(ValueError, match="1 pages of 4 cannot hold 5 tokens"):
        decoder.launch([DecodeRow(0, 3, 4, 0, [1])], lambda logits: logits.argmax(-1))


def test_the_processor_is_told_of_steps_as_they_are(model: Any, kv: KVCache) -> None:
    assert CPU.kernels.decoder(model, kv, ROWS, LONGEST, 1) is None
