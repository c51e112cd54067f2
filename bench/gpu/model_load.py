"""A process that runs one stage of a model again and again, for `Partner`."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch

from bench.gpu import dummy_model
from bench.gpu.shapes import make_folder
from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.device import DecodeRow, open_device
from unifiedserve.messages.media import MediaOptions
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Instance
from unifiedserve.worker.language.model import LanguageModel

CONTEXT, LARGEST = 1024, 64  # tokens of each sequence; sequences
PATCH_PIXELS = 14


class ModelLoad:
    """A model of made-up weights, and the steps of its stages by their names and sizes."""

    def load(self, shape: str, device: str) -> float:
        """Make the model; return the seconds that took."""
        start = time.perf_counter()
        self._folder = make_folder(Path(f"{shape}-{time.monotonic_ns()}"), shape)
        self._device = open_device(cast(DeviceName, device), EngineConfig())
        self._device.sharing.enter(Instance("load", ()), 0)
        adapter = dummy_model.load(self._folder, self._device)
        pages = LARGEST * -(-(2 * CONTEXT) // EngineConfig().memory.kv_page_tokens)
        self._model = LanguageModel(adapter, dummy_model.make_cache(adapter, pages))
        self._steps: dict[tuple[str, int], Callable[[], object]] = {}
        return time.perf_counter() - start

    def run(self, stage: str, size: int, seconds: float) -> dict[str, float]:
        """Do steps of a stage for some seconds: decode of so many sequences, prefill of so many tokens of a prompt, or
        encoding of so many patches. Return the number of steps, and median and 99th percentile of their milliseconds.
        """
        if (stage, size) not in self._steps:
            make = {"decode": self._decode, "prefill": self._prefill, "encode": self._encode}[stage]
            self._steps[stage, size] = step = make(size)
            step()
        times = []
        end = time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            self._steps[stage, size]()
            self._device.fence()
            times.append(1e3 * (time.perf_counter() - start))
        times.sort()
        return {"steps": len(times), "median_ms": statistics.median(times), "p99_ms": times[int(0.99 * len(times))]}

    def _decode(self, sequences: int) -> Callable[[], object]:
        batch = dummy_model.make_batch(self._model, sequences, CONTEXT, 1)
        decoder = self._model.adapter.decoder(self._model.kv, sequences, CONTEXT + 1)
        if decoder is None:
            return lambda: self._model.next_logits(batch, self._model.run(batch))
        rows = [DecodeRow(number, 0, CONTEXT, 0, each.pages) for number, each in enumerate(batch)]
        return lambda: decoder.launch(rows, lambda logits: logits.argmax(-1)).wait()

    def _prefill(self, tokens: int) -> Callable[[], object]:
        batch = dummy_model.make_batch(self._model, 1, CONTEXT, tokens)
        return lambda: self._model.next_logits(batch, self._model.run(batch))

    def _encode(self, patches: int) -> Callable[[], object]:
        processor = load_processor(self._folder)
        side = round(patches**0.5) * PATCH_PIXELS
        plan = processor.plan_image(side, side, MediaOptions())
        adapter = self._model.adapter
        rows = torch.randint(256, (plan.patches, processor.patch_row_bytes), dtype=torch.uint8)
        there = adapter.device.upload(rows)
        return lambda: adapter.visual_tokens(there, [(plan, range(plan.units))])
