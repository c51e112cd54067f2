"""The language model's decode step beside the time it takes to read its weights, and beside transformers' own modules.

A step takes one token of each of B sequences, all with the same length of context, to the next tokens (greedy):
layers, logits and argmax. The floor is the bytes of the weights that a step must read, divided by the bandwidth at
which as many threads read the same memory. Repetitions of all contestants are interleaved; figures are medians, ratios
are taken within a repetition.

    python bench/language_step.py [CHECKPOINT]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from serve_cpu import checkpoint
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch
from unifiedserve.attention.base import Span
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.weights import attach_weights, load_weights
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.base import LanguageAdapter
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.registry import load_adapter
from unifiedserve.sampling.sample import sample

PAGE_TOKENS = 16
GREEDY = SamplingParams(temperature=0)

Step = Callable[[], object]


class Ours:
    """A decode step over pages in random order, filled with random keys and values."""

    def __init__(self, adapter: LanguageAdapter, batch: int, context: int) -> None:
        self.adapter = adapter
        layout = KVLayout.of(adapter.config, PAGE_TOKENS, adapter.dtype)
        count = -(-(context + 1) // PAGE_TOKENS)
        self.pool = PagePool.create(f"bench-step-{os.getpid()}", batch * count, layout.page_bytes)
        self.kv = KVCache(self.pool, layout)
        for layer in range(layout.shape[0]):
            self.kv.k(layer).normal_()
            self.kv.v(layer).normal_()
        tables = torch.randperm(batch * count).view(batch, count).tolist()
        self.spans = [Span(table, context, context + 1) for table in tables]
        self.positions = torch.full((adapter.position_rows, batch), context)
        self.tokens = torch.arange(batch)
        self.plain = torch.zeros(batch, dtype=torch.bool)

    def step(self) -> list[Any]:
        ragged = RaggedBatch.build(self.spans, PAGE_TOKENS)
        embeds = self.adapter.embed(self.tokens, None, self.plain)
        logits = self.adapter.logits(self.adapter.forward(embeds, self.positions, ragged, self.kv))
        batch = len(self.spans)
        return sample(logits, [GREEDY] * batch, [[0]] * batch, [1] * batch)

    def close(self) -> None:
        self.pool.close()
        self.pool.unlink()


class Theirs:
    """transformers' language model and head with its own cache, over the same weights."""

    def __init__(self, model: Any, batch: int, context: int) -> None:
        text = model.config.get_text_config()
        self.model, self.context = model, context
        self.cache = load_transformers().DynamicCache(config=text)
        shape = (batch, text.num_key_value_heads, context, text.hidden_size // text.num_attention_heads)
        for layer in range(text.num_hidden_layers):
            self.cache.update(torch.randn(shape, dtype=model.dtype), torch.randn(shape, dtype=model.dtype), layer)
        self.tokens = torch.arange(batch)[:, None]

    @torch.inference_mode()
    def step(self) -> list[int]:
        positions = torch.full((3, len(self.tokens), 1), self.context)
        hidden = self.model.get_decoder()(
            input_ids=self.tokens, position_ids=positions, past_key_values=self.cache, use_cache=True
        ).last_hidden_state
        self.cache.crop(-1)
        scores: Tensor = self.model.get_output_embeddings()(hidden[:, -1])
        return scores.argmax(-1).tolist()


def step_bytes(model: Any) -> int:
    """Return the bytes of weights that a step reads: the layers, the final norm and the head."""
    decoder = model.get_decoder()
    tensors = [*decoder.layers.parameters(), *decoder.norm.parameters(), model.get_output_embeddings().weight]
    return sum(tensor.nbytes for tensor in tensors)


def read_all(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.view(-1).view(torch.int64).sum()


def transformers_model(config: Any, adapter: LanguageAdapter) -> Any:
    """Return the adapter's own modules with transformers' attention instead of ours."""
    adapter.model.set_attn_implementation({"text_config": "sdpa", "vision_config": "sdpa"})
    return adapter.model


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


def row(adapter: LanguageAdapter, batch: int, context: int, repetitions: int) -> dict[str, Any]:
    weights = [*adapter.language_model.layers.parameters(), adapter.model.get_output_embeddings().weight]
    large = [tensor for tensor in weights if tensor.dim() == 2]
    ours, theirs = Ours(adapter, batch, context), Theirs(adapter.model, batch, context)
    try:
        contestants = {"floor": lambda: read_all(large), "ours": ours.step, "transformers": theirs.step}
        times = measure(contestants, repetitions)
    finally:
        ours.close()
    scale = step_bytes(adapter.model) / sum(tensor.nbytes for tensor in large)
    floors = [seconds * scale for seconds in times["floor"]]
    return {
        "batch": batch,
        "context": context,
        "floor_ms": 1e3 * statistics.median(floors),
        "ours_ms": 1e3 * statistics.median(times["ours"]),
        "transformers_ms": 1e3 * statistics.median(times["transformers"]),
        "ours_over_floor": statistics.median(a / b for a, b in zip(times["ours"], floors, strict=True)),
        "transformers_over_ours": statistics.median(
            a / b for a, b in zip(times["transformers"], times["ours"], strict=True)
        ),
    }


def run(model_dir: Path, dtype: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    name = f"bench-step-weights-{os.getpid()}"
    memory = load_weights(model_dir, name, getattr(torch, dtype))
    try:
        adapter = load_adapter(model_dir, attach_weights(name), getattr(torch, dtype))
        transformers_model(adapter.config, adapter)
        return [
            {"dtype": dtype} | row(adapter, batch, context, args.repetitions)
            for context in args.contexts
            for batch in args.batches
        ]
    finally:
        memory.unlink()


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Decode step, medians")
    for column in ("dtype", "context", "batch", "floor", "ours", "transformers", "ours / floor", "transformers / ours"):
        table.add_column(column, justify="right")
    for each in rows:
        table.add_row(
            each["dtype"],
            str(each["context"]),
            str(each["batch"]),
            *(f"{each[key]:.1f} ms" for key in ("floor_ms", "ours_ms", "transformers_ms")),
            *(f"{each[key]:.2f}" for key in ("ours_over_floor", "transformers_over_ours")),
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", type=Path, nargs="?", default=checkpoint.DEFAULT_FOLDER, help="made if missing (default: %(default)s)"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 4096])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, default=Path("bench/results/language_step.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if not (args.model / "config.json").exists():
        checkpoint.make(args.model)
    rows = [each for dtype in args.dtypes for each in run(args.model, dtype, args)]
    show(rows)
    args.json.write_text(json.dumps({"machine": describe_machine(), "steps": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
