"""The language model's decode step by rows, contexts and weights, beside what reading and multiplying alone would take.

A step takes one token of each of B sequences, all with the same length of context, to the next tokens (greedy):
embedding, layers, logits and argmax. Beside it two estimates: the bytes of the weights, and of the keys and values, at
the bandwidth at which torch sums up the weights with as many threads, which kernels may exceed; and the products'
operations at the rate of a chunk of 512 tokens.
Repetitions of all weights and estimates are interleaved; figures are medians, ratios are taken within a repetition.

    OMP_WAIT_POLICY=PASSIVE python bench/language_step.py [CHECKPOINT]   # writes bench/results/language-step.{json,png}

Without that, as workers set it for themselves, torch's threads spin on the cores that the kernels' threads need.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from loaded_model import loaded
from rich.console import Console
from rich.progress import track
from rich.table import Table
from serve_cpu import checkpoint
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve import _core
from unifiedserve.attention import RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.device.cpu.modules import PanelLinear
from unifiedserve.device.cpu.processor import thread_pool
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.sampling.sample import sample

PAGE_TOKENS = 16
CHUNK = 512
MOST_TOKENS = 160_000  # in the cache
GREEDY = SamplingParams(temperature=0)
Weights = Literal["none", "int8", "int4"]

Step = Callable[[], object]


class DecodeStep:
    """A decode step over pages in random order, filled with random keys and values."""

    def __init__(self, adapter: LanguageAdapter, batch: int, context: int, ranks: int = 1) -> None:
        self.adapter = adapter
        layout = KVLayout.of(adapter.config, PAGE_TOKENS, name_of(adapter.dtype), ranks)
        self.layout = layout
        self.token_bytes = layout.page_bytes / PAGE_TOKENS
        count = -(-(context + 1) // PAGE_TOKENS)
        self.pool = PagePool.create(f"bench-step-{os.getpid()}-{id(self)}", batch * count, layout.page_bytes)
        self.kv = KVCache(self.pool, layout)
        for layer in range(layout.shape[0]):
            self.kv.k(layer).normal_()
            self.kv.v(layer).normal_()
        tables = torch.randperm(batch * count).view(batch, count).tolist()
        self.spans = [Span(table, context, context + 1) for table in tables]
        self.positions = torch.full((adapter.position_rows, batch), context)
        self.tokens = torch.arange(batch)
        self.plain = torch.zeros(batch, dtype=torch.bool)

    def __call__(self) -> list[Any]:
        ragged = RaggedBatch.build(self.spans, PAGE_TOKENS)
        embeds = self.adapter.embed(self.tokens, None, self.plain)
        logits = self.adapter.logits(self.adapter.forward(embeds, self.positions, ragged, self.kv))
        batch = len(self.spans)
        return sample(logits, [GREEDY] * batch, [[0]] * batch, [1] * batch)

    def close(self) -> None:
        self.pool.close()
        self.pool.unlink()


@dataclass(frozen=True)
class Model:
    """A model with its language model's matrices in one kind of weights."""

    adapter: LanguageAdapter
    dtype: str
    quantization: Weights

    @property
    def name(self) -> str:
        return self.dtype if self.quantization == "none" else self.quantization

    def matrices(self) -> list[Tensor]:
        """Return all that a step reads of the matrices."""
        parts = [
            part for each in self._linears() for part in (each.matrix.panels, each.matrix.scales, each.matrix.zeros)
        ]
        return [part for part in parts if part is not None]

    def values(self) -> int:
        """Return how many weights the matrices have."""
        return sum(each.in_features * each.out_features for each in self._linears())

    def _linears(self) -> list[PanelLinear]:
        modules = [*self.adapter.language_model.modules(), self.adapter.model.get_output_embeddings()]
        return [module for module in modules if isinstance(module, PanelLinear)]


def read_all(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.view(-1).view(torch.int64).sum()


def timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(contestants: Mapping[str, Step], repetitions: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(repetitions + 1):
        for name, step in contestants.items():
            seconds = timed(step)
            if number > 0:  # the first warms up
                times[name].append(seconds)
    return times


class Chunk:
    """The product of a chunk of a prompt and the model's widest matrix but the head."""

    def __init__(self, adapter: LanguageAdapter) -> None:
        self._linear = max(
            (each for each in adapter.language_model.modules() if isinstance(each, PanelLinear)),
            key=lambda each: each.in_features * each.out_features,
        )
        self._x = torch.randn(CHUNK, self._linear.in_features).to(adapter.dtype)
        self._y = torch.empty(CHUNK, self._linear.out_features)
        self.products = CHUNK * self._linear.in_features * self._linear.out_features

    def __call__(self) -> None:
        _core.linear(thread_pool(), self._x, self._linear._native, self._y)


def rows_of(models: list[Model], batch: int, context: int, repetitions: int) -> list[dict[str, Any]]:
    """Measure a step of each model."""
    steps = {model.name: DecodeStep(model.adapter, batch, context) for model in models}
    plain, chunk = models[0].matrices(), Chunk(models[0].adapter)
    try:
        times = measure({**steps, "read": lambda: read_all(plain), "chunk": chunk}, repetitions)
    finally:
        for step in steps.values():
            step.close()
    plain_bytes = sum(tensor.nbytes for tensor in plain)
    bandwidth = [plain_bytes / seconds for seconds in times["read"]]
    rate = statistics.median(chunk.products / seconds for seconds in times["chunk"])
    found = []
    for model in models:
        kv_bytes = batch * context * steps[model.name].token_bytes
        read_bytes = sum(tensor.nbytes for tensor in model.matrices()) + kv_bytes
        found.append(
            {
                "weights": model.name,
                "batch": batch,
                "context": context,
                "step_ms": 1e3 * statistics.median(times[model.name]),
                "reading_ms": 1e3 * statistics.median(read_bytes / each for each in bandwidth),
                "products_ms": 1e3 * batch * model.values() / rate,
                "over_first": statistics.median(
                    a / b for a, b in zip(times[model.name], times[models[0].name], strict=True)
                ),
                "gb_per_s": statistics.median(bandwidth) / 1e9,
                "times_ms": [round(1e3 * seconds, 3) for seconds in times[model.name]],
            }
        )
    return found


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Decode step, medians, in ms")
    for column in ("context", "rows", "weights", "step", "reading alone", "products alone", "/ the first"):
        table.add_column(column, justify="right")
    for each in rows:
        figures = (f"{each[key]:.1f}" for key in ("step_ms", "reading_ms", "products_ms"))
        table.add_row(str(each["context"]), str(each["batch"]), each["weights"], *figures, f"{each['over_first']:.2f}")
    Console().print(table)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    contexts = sorted({each["context"] for each in rows})
    figure, panels = pyplot.subplots(1, len(contexts), figsize=(4 * len(contexts), 3.6), sharey=True, squeeze=False)
    for panel, context in zip(panels[0], contexts, strict=True):
        for name in dict.fromkeys(each["weights"] for each in rows):
            own = [each for each in rows if each["weights"] == name and each["context"] == context]
            (line,) = panel.plot(
                [each["batch"] for each in own], [each["step_ms"] for each in own], marker="o", label=name
            )
            estimates = [max(each["reading_ms"], each["products_ms"]) for each in own]
            panel.plot([each["batch"] for each in own], estimates, linestyle=":", color=line.get_color())
        panel.set(title=f"context {context}", xlabel="sequences", xscale="log", yscale="log")
        panel.set_xticks(
            batches := sorted({each["batch"] for each in rows}), labels=[str(batch) for batch in batches], minor=False
        )
        panel.set_yticks(marks := [10, 20, 50, 100, 200, 500], labels=[str(mark) for mark in marks])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("ms a step")
    panels[0][0].legend(title="weights (dotted: estimate)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", type=Path, nargs="?", default=checkpoint.DEFAULT_FOLDER, help="made if missing (default: %(default)s)"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 2048, 16384])
    parser.add_argument("--dtype", default=CPU.best_dtype(), choices=["bfloat16", "float32"])
    parser.add_argument("--weights", nargs="+", default=["none", "int8", "int4"], choices=["none", "int8", "int4"])
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, default=Path("bench/results/language-step.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if not (args.model / "config.json").exists():
        checkpoint.make(args.model)
    sizes = [(b, c) for c in args.contexts for b in args.batches if b * c <= MOST_TOKENS]
    with torch.inference_mode(), ExitStack() as stack:
        models = []
        for each in args.weights:
            config = EngineConfig.of(dtype=args.dtype, quantization=each)
            models.append(Model(stack.enter_context(loaded(args.model, config)).adapter, args.dtype, each))
        rows = [
            each
            for batch, context in track(sizes, "measuring", console=Console(stderr=True))
            for each in rows_of(models, batch, context, args.repetitions)
        ]
    show(rows)
    report = {"machine": describe_machine(), "kernels": _core.instruction_set(), "steps": rows}
    args.json.write_text(json.dumps(report, indent=2) + "\n")
    draw(args.json.with_suffix(".png"), rows)


if __name__ == "__main__":
    main()
