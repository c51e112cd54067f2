"""Steps of a model in this process, as workers do them: decode's beside the time that reading its bytes takes."""

import statistics
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from bench.gpu import dummy_model, steps
from bench.gpu.figures import Figures
from bench.gpu.shapes import make_folder
from bench.gpu.steps import Step, Times
from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.device import Decoder, DecodeRow, DecodeStep, Device, open_device
from unifiedserve.messages.media import MediaOptions
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.registry import load_processor
from unifiedserve.sampling.sample import sample
from unifiedserve.worker.language.model import LanguageModel, Rows

AHEAD = 40  # steps of decode that are launched ahead
GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True)
class Sizes:
    """Tokens before a step's own, decode's batches, prefill's chunk, pictures' widths and heights, bytes copied."""

    context: int = 4096
    batches: tuple[int, ...] = (1, 8, 64)
    chunk: int = 512
    pictures: tuple[tuple[int, int], ...] = ((896, 448), (1792, 896))  # 2048 and 8192 patches of 14 pixels
    copied: int = 1 << 30


class Report:
    """Rows of steps of their kernels and of the host's functions; each is told as soon as it is measured."""

    def __init__(self, figures: Figures, device: Device) -> None:
        self._figures, self._device = figures, device
        self._steps, self._kernels, self._host = (list[dict[str, Any]]() for _ in range(3))

    def measure(self, name: str, step: Step) -> Times:
        """Measure a step, and where the profiler can, its kernels."""
        times = steps.measure(step, self._device)
        self._steps.append({"step": name, "ms": 1e3 * times.done, "issued_ms": 1e3 * times.issued})
        self._figures.add(steps=self._steps)
        self._host += [{"step": name, **row} for row in steps.host_functions(step, self._device)]
        self._figures.add(host=self._host)
        try:
            total, rows = steps.kernels(step, self._device)
        except Exception as error:
            self.add(profiler=f"{type(error).__name__}: {error}"[:200])
        else:
            self._kernels += [{"step": name, **row} for row in rows]
            self.add(kernels_ms=total)
            self._figures.add(kernels=self._kernels)
        return times

    def begin(self, name: str, seconds: float, issued: float) -> None:
        """Begin the row of a step that was measured otherwise."""
        self._steps.append({"step": name, "ms": 1e3 * seconds, "issued_ms": 1e3 * issued})
        self._figures.add(steps=self._steps)

    def add(self, **found: object) -> None:
        """Say more of the step that was measured last."""
        self._steps[-1] |= found
        self._figures.add(steps=self._steps)


def measure(figures: Figures, device: str, shape: str) -> None:
    """Measure the steps of a model of a published shape."""
    measure_folder(
        figures, make_folder(Path(shape), shape), open_device(cast(DeviceName, device), EngineConfig()), Sizes()
    )


def measure_folder(figures: Figures, folder: Path, device: Device, sizes: Sizes) -> None:
    """Measure decode, a chunk of prefill and a picture's encoding with made-up weights, bfloat16."""
    bandwidth = steps.copy_bandwidth(device, sizes.copied)
    figures.add(copy_gb_s=bandwidth / 1e9)
    start = time.perf_counter()
    adapter = dummy_model.load(folder, device)
    figures.add(loaded_s=time.perf_counter() - start)
    pages = max(sizes.batches) * -(-(sizes.context + sizes.chunk) // EngineConfig().memory.kv_page_tokens)
    cache = dummy_model.make_cache(adapter, pages)
    figures.add(kv_pages=cache.pool.num_pages, sequences_share_pages=cache.pool.num_pages < pages)
    model, report = LanguageModel(adapter, cache), Report(figures, device)
    for batch in sizes.batches:
        decode(report, model, batch, sizes.context, bandwidth)
    prefill(report, model, sizes.context, sizes.chunk)
    for picture in sizes.pictures:
        encode(report, adapter, folder, *picture)


def decode(report: Report, model: LanguageModel, batch: int, context: int, bandwidth: float) -> None:
    """Measure one token of each sequence; its floor is reading the weights and all keys and values at `bandwidth`."""
    token_bytes = model.kv.pool.page_bytes // model.kv.page_size
    floor = (sum(dummy_model.weight_bytes(model.adapter)) + batch * context * token_bytes) / bandwidth

    def compare(seconds: float) -> None:
        report.add(floor_ms=1e3 * floor, of_floor=seconds / floor, tokens_s=batch / seconds)

    compare(report.measure(f"decode {batch} × {context}", _step(model, batch, context, 1)).done)
    decoder = model.adapter.decoder(model.kv, batch, context + AHEAD + 1)
    if decoder is not None:
        times = ahead(decoder, model, batch, context)
        report.begin(f"decode {batch} × {context}, by itself", times.done, times.issued)
        compare(times.done)


def prefill(report: Report, model: LanguageModel, context: int, chunk: int) -> None:
    """Measure a chunk of one prompt."""
    times = report.measure(f"prefill {chunk} after {context}", _step(model, 1, context, chunk))
    layers, head = dummy_model.weight_bytes(model.adapter)
    text = model.adapter.config.get_text_config()
    keys = chunk * context + chunk * (chunk + 1) // 2
    flops = 2 * (chunk * layers + head) // dummy_model.DTYPE.itemsize
    flops += 4 * text.num_hidden_layers * text.hidden_size * keys
    report.add(tflop_s=flops / times.done / 1e12, tokens_s=chunk / times.done)


def encode(report: Report, adapter: LanguageAdapter, folder: Path, width: int, height: int) -> None:
    """Measure the vision tower on a picture."""
    processor = load_processor(folder)
    plan = processor.plan_image(width, height, MediaOptions())
    patches = adapter.device.upload(torch.randint(256, (plan.patches, processor.patch_row_bytes), dtype=torch.uint8))
    units = [(plan, range(plan.units))]
    times = report.measure(f"encode {plan.patches} patches", Step(lambda: adapter.visual_tokens(patches, units)))
    report.add(tokens_s=plan.tokens / times.done)


def ahead(decoder: Decoder, model: LanguageModel, batch: int, context: int) -> Times:
    """Measure steps of which each is launched before the last one's tokens are there, as a worker does it."""
    pages = [rows.pages for rows in dummy_model.make_batch(model, batch, context, AHEAD)]
    issued, ended = list[float](), list[float]()
    under_way: list[DecodeStep] = []
    for step in range(AHEAD):
        token = None if step else 0
        length = context + step - 1
        held = model.kv.pages_for(length + 1)
        rows = [DecodeRow(row, token, length, 0, own[:held]) for row, own in enumerate(pages)]
        begin = time.perf_counter()
        under_way.append(decoder.launch(rows, lambda logits: logits.argmax(-1)))
        issued.append(time.perf_counter() - begin)
        if step:
            under_way.pop(0).tokens()
            ended.append(time.perf_counter())
    under_way.pop().tokens()
    return Times(statistics.median(issued), statistics.median(b - a for a, b in pairwise(ended)))


def _step(model: LanguageModel, sequences: int, start: int, count: int) -> Step:
    batch: list[Rows] = dummy_model.make_batch(model, sequences, start, count)

    def issue() -> Tensor:
        return model.next_logits(batch, model.run(batch))

    def finish(logits: Tensor) -> None:
        sample(logits, [GREEDY] * sequences, [[0]] * sequences, [0] * sequences)

    return Step(issue, finish)
