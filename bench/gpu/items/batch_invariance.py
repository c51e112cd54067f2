"""What `--batch-invariant` holds and costs, with a model of a published shape and made-up weights.

Greedy texts are made alone, all at once with prompts in chunks, and again from their middle, as after a preemption.
They must be the same to the last token, and a picture's visual tokens to the bit beside others. Without the option, how
far they are the same is said.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from bench.gpu import dummy_model, steps
from bench.gpu.figures import Figures
from bench.gpu.items import model_steps
from bench.gpu.shapes import make_folder
from bench.gpu.steps import Step
from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.device import Decoder, DecodeRow, Device, open_device
from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.registry import load_processor
from unifiedserve.worker.language.model import LanguageModel, Rows

Text = list[int]


@dataclass(frozen=True)
class Sizes:
    """Prompts' tokens, those of each text and of each without the option, a chunk's; sizes of the steps measured."""

    prompts: tuple[int, ...] = (300, 1100, 7)
    tokens: int = 1500
    usual_tokens: int = 300
    chunk: int = 130
    batches: tuple[int, ...] = (1, 8, 32)
    context: int = 2048
    prompt: int = 2048
    pictures: tuple[tuple[int, int], ...] = ((896, 448), (448, 448), (280, 1120))


def measure(figures: Figures, device: str, shape: str) -> None:
    """Measure with the option and without it; raises RuntimeError if a text depends on its company."""
    folder = make_folder(Path(shape), shape)
    name = cast(DeviceName, device)
    invariant, usual = (open_device(name, EngineConfig.of(batch_invariant=option)) for option in (True, False))
    measure_folder(figures, folder, invariant, usual, Sizes())


def measure_folder(figures: Figures, folder: Path, invariant: Device, usual: Device, sizes: Sizes) -> None:
    """Measure a model of a folder; texts are compared before anything is timed."""
    found, times = dict[str, dict[str, list[int]]](), dict[str, dict[str, float]]()
    pictures = dict[str, bool]()
    ways = ("invariant", invariant, sizes), ("usual", usual, replace(sizes, tokens=sizes.usual_tokens))
    for name, device, own in ways:
        with loaded(folder, device, own) as model:
            found[name] = compare(model, own)
            pictures[name] = encodes_alike(model.adapter, folder, own)
            figures.add(same_tokens=found, same_pictures=pictures)
            times[name] = time_steps(model, folder, own)
            figures.add(ms=times)
    figures.add(cost={step: times["invariant"][step] / usual_ms for step, usual_ms in times["usual"].items()})
    different = [way for way, counts in found["invariant"].items() if min(counts) < sizes.tokens]
    different += [] if pictures["invariant"] else ["pictures"]
    if different:
        raise RuntimeError(f"others than alone: {', '.join(different)}")


@contextmanager
def loaded(folder: Path, device: Device, sizes: Sizes) -> Iterator[LanguageModel]:
    """Load the model with room for all texts and for the steps; give its memory back."""
    longest = max(sizes.prompts) + sizes.tokens + 1
    tokens = max(len(sizes.prompts) * longest, max(sizes.batches) * (sizes.context + model_steps.AHEAD + 1))
    tokens = max(tokens, sizes.context + sizes.prompt)
    adapter = dummy_model.load(folder, device)
    pages = -(-tokens // EngineConfig().memory.kv_page_tokens) + len(sizes.prompts) + max(sizes.batches)
    model = LanguageModel(adapter, dummy_model.make_cache(adapter, pages))
    yield model
    del model, adapter
    gc.collect()


def compare(model: LanguageModel, sizes: Sizes) -> dict[str, list[int]]:
    """Return how many tokens from the beginning are those of each text alone, by what is another way."""
    random = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 1000, (n,), generator=random).tolist() for n in sizes.prompts]
    alone = [write(model, [prompt], sizes.tokens, len(prompt))[0] for prompt in prompts]
    half = sizes.tokens // 2
    middles = [prompt + text[:half] for prompt, text in zip(prompts, alone, strict=True)]
    again = write(model, middles, sizes.tokens - half, sizes.chunk)
    found = {
        "together, in chunks": write(model, prompts, sizes.tokens, sizes.chunk),
        "again from the middle": [text[:half] + rest for text, rest in zip(alone, again, strict=True)],
    }
    return {way: [same(*pair) for pair in zip(texts, alone, strict=True)] for way, texts in found.items()}


def same(text: Text, other: Text) -> int:
    """Return how many tokens two texts begin with alike."""
    pairs = enumerate(zip(text, other, strict=True))
    return next((place for place, (one, another) in pairs if one != another), len(text))


def write(model: LanguageModel, prompts: Sequence[Text], tokens: int, chunk: int) -> list[Text]:
    """Return greedy texts that go on from prompts, all of which are computed together."""
    free = iter(range(model.kv.pool.num_pages))
    pages = [list(islice(free, model.kv.pages_for(len(prompt) + tokens))) for prompt in prompts]
    texts = [[token] for token in prefill(model, prompts, pages, chunk)]
    decoder = model.adapter.decoder(model.kv, len(prompts), max(map(len, prompts)) + tokens)
    while len(texts[0]) < tokens:
        batch = [
            rows_of(model, text[-1:], len(prompt) + len(text) - 1, own)
            for prompt, text, own in zip(prompts, texts, pages, strict=True)
        ]
        new = choose(model, batch) if decoder is None else decode(decoder, batch)
        for text, token in zip(texts, new, strict=True):
            text.append(token)
    return texts


def decode(decoder: Decoder, batch: Sequence[Rows]) -> list[int]:
    """Return the likeliest tokens behind these, by a recorded step."""
    asked = [DecodeRow(row, rows.token_ids[0], rows.start, 0, rows.pages) for row, rows in enumerate(batch)]
    tokens = decoder.launch(asked, lambda logits: logits.argmax(-1)).tokens()
    decoder.prepare()
    return tokens


def prefill(model: LanguageModel, prompts: Sequence[Text], pages: Sequence[list[int]], chunk: int) -> list[int]:
    """Compute prompts side by side, so many tokens of each in a step, and return the tokens behind them."""
    new = [0] * len(prompts)
    for start in range(0, max(map(len, prompts)), chunk):
        under_way = [number for number, prompt in enumerate(prompts) if start < len(prompt)]
        batch = [rows_of(model, prompts[n][start : start + chunk], start, pages[n]) for n in under_way]
        for number, token in zip(under_way, choose(model, batch), strict=True):
            new[number] = token
        model.adapter.device.fence()
    return new


def choose(model: LanguageModel, batch: list[Rows]) -> list[int]:
    """Return the likeliest token behind each sequence's new ones."""
    tokens: list[int] = model.next_logits(batch, model.run(batch)).argmax(-1).tolist()
    return tokens


def rows_of(model: LanguageModel, tokens: Text, start: int, pages: list[int]) -> Rows:
    """Return a sequence's new tokens, at the positions of a text."""
    positions = torch.arange(start, start + len(tokens)).expand(model.adapter.position_rows, -1)
    return Rows(tokens, positions, start, pages[: model.kv.pages_for(start + len(tokens))])


def time_steps(model: LanguageModel, folder: Path, sizes: Sizes) -> dict[str, float]:
    """Return the milliseconds of each kind of step."""
    found: dict[str, float] = {}
    for batch in sizes.batches:
        decoder = model.adapter.decoder(model.kv, batch, sizes.context + model_steps.AHEAD + 1)
        if decoder is not None:
            found[f"decode {batch}"] = 1e3 * model_steps.ahead(decoder, model, batch, sizes.context).done
    rows = dummy_model.make_batch(model, 1, 0, sizes.prompt)
    prompt = Step(lambda: model.next_logits(rows, model.run(rows)))
    found[f"prefill {sizes.prompt}"] = 1e3 * steps.measure(prompt, model.adapter.device).done
    plan, patches = pictures_of(model.adapter, folder, sizes)[0]
    picture = Step(lambda: model.adapter.visual_tokens(patches, [(plan, range(plan.units))]))
    found[f"encode {plan.patches} patches"] = 1e3 * steps.measure(picture, model.adapter.device).done
    return found


def encodes_alike(adapter: LanguageAdapter, folder: Path, sizes: Sizes) -> bool:
    """Tell whether each picture's visual tokens are the same to the bit alone and beside the others."""
    plans, patches = zip(*pictures_of(adapter, folder, sizes), strict=True)
    alone = [adapter.visual_tokens(own, [(plan, range(plan.units))]) for plan, own in zip(plans, patches, strict=True)]
    together = adapter.visual_tokens(torch.cat(patches), [(plan, range(plan.units)) for plan in plans])
    return torch.equal(together, torch.cat(alone))


def pictures_of(adapter: LanguageAdapter, folder: Path, sizes: Sizes) -> list[tuple[MediaPlan, Tensor]]:
    """Return plans of pictures, and uint8 patches of noise."""
    processor = load_processor(folder)
    plans = [processor.plan_image(width, height, MediaOptions()) for width, height in sizes.pictures]
    size = processor.patch_row_bytes
    noise = [torch.randint(256, (plan.patches, size), dtype=torch.uint8) for plan in plans]
    return [(plan, adapter.device.upload(own)) for plan, own in zip(plans, noise, strict=True)]
