"""The smallest engine that can be: chunked prefill and decode of many requests at once over scattered pages."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from reference import Case, Reference
from torch import Tensor
from torch.nn import functional

from ipc_buffers import PagePool
from unifiedserve.attention import CrossSpan, RaggedBatch
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.memory.number_types import name_of
from unifiedserve.memory.weights import attach_weights, store_weights
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.processor import ExpandedPrompt, MediaOptions, MediaPlan, Processor, VideoInfo
from unifiedserve.models.registry import load_config
from unifiedserve.models.scopes import Scope, cross_spans
from unifiedserve.sampling.sample import sample

GREEDY = SamplingParams(temperature=0)
VISUAL_ROWS = 4096  # of a buffer for models that keep theirs


def make_adapter(checkpoint: Path, dtype: torch.dtype, device: Device = CPU, **given: str) -> LanguageAdapter:
    """Load a checkpoint as a server with the `given` options does."""
    name = f"test-models-{uuid.uuid4().hex[:12]}"
    config = load_config(checkpoint)
    tensors = weight_source(EngineConfig.of(**given), checkpoint, config, device, name_of(dtype))
    memory = store_weights(tensors, name, dtype, device.place)
    try:
        return load_adapter(checkpoint, attach_weights(name, device), dtype, device)
    finally:
        memory.unlink()


@dataclass
class Request:
    prompt: ExpandedPrompt
    patches: Tensor  # uint8 [N, row_bytes], in prompt order
    params: SamplingParams = GREEDY
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    pages: list[int] = field(default_factory=list)

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.prompt.token_ids)


class Inputs(NamedTuple):
    """What the model gets of a prompt, and the offset of generated tokens' positions."""

    visual: Tensor | None  # [m, visual_dim]
    is_visual: Tensor  # bool [n]
    positions: Tensor  # int64 [P, n]
    offset: int
    scopes: Sequence[Scope]
    kept: Tensor  # int64 [m]: where in the visual buffer the rows are that its tokens attend to

    def cross(self, start: int, stop: int) -> list[CrossSpan]:
        """What tokens [start, stop) attend to."""
        return cross_spans(
            self.scopes, start, stop, lambda rows: torch.cat([self.kept[part.start : part.stop] for part in rows])
        )


def plans(ours: Processor, case: Case, options: MediaOptions | None = None) -> list[MediaPlan]:
    """The plans of a case's media in prompt order."""
    images = [ours.plan_image(image.shape[1], image.shape[0], MediaOptions()) for image in case.images]
    videos = [
        ours.plan_video(
            VideoInfo(len(frames), case.fps, len(frames) / case.fps, frames.shape[2], frames.shape[1]),
            options or MediaOptions(num_frames=-1),
        )
        for frames in case.videos
    ]
    queues = {"image": iter(images), "video": iter(videos)}
    parts = [part for m in case.messages if isinstance(m["content"], list) for part in m["content"]]
    return ours.together([next(queues[part["type"]]) for part in parts if part["type"] in queues])


def prepare(ours: Processor, hf: Reference, case: Case) -> Request:
    """A request whose patches are transformers', so that only the model is compared."""
    media = plans(ours, case)
    patches = hf.uint8_patches(case)
    rows = []
    for plan in media:
        rows.append(patches[plan.kind][: plan.patches])
        patches[plan.kind] = patches[plan.kind][plan.patches :]
    empty = torch.empty(0, ours.patch_row_bytes, dtype=torch.uint8)
    return Request(ours.prompt(case.messages, media), torch.cat([empty, *rows]))


class Loop:
    def __init__(
        self,
        adapter: LanguageAdapter,
        pages: int = 512,
        page_size: int = 16,
        seed: int = 0,
        kv_dtype: torch.dtype | None = None,
        layout: KVLayout | None = None,
    ) -> None:
        self.adapter = adapter
        layout = layout or KVLayout.of(adapter.config, page_size, name_of(kv_dtype or adapter.dtype))
        self.pool = PagePool.create(
            f"test-models-{uuid.uuid4().hex[:12]}", pages, layout.page_bytes, adapter.device.place
        )
        random = np.random.default_rng(seed)
        self.free = random.permutation(pages).tolist()
        self.free_rows = random.permutation(VISUAL_ROWS).tolist()
        self.kv = KVCache(self.pool, layout, device=adapter.device)

    def close(self) -> None:
        self.pool.close()
        self.pool.unlink()

    def generate(
        self,
        requests: Sequence[Request],
        count: int,
        chunk: int = 1 << 30,
        eos: Sequence[int] = (),
        on_step: Callable[[int], None] = lambda step: None,
    ) -> list[list[int]]:
        """Up to `count` tokens for each request; every step takes up to `chunk` tokens of each."""
        inputs = [self.inputs(request) for request in requests]
        for request in requests:
            request.tokens = list(request.prompt.token_ids)
        running = list(range(len(requests)))
        step = 0
        while running:
            self._step([requests[i] for i in running], [inputs[i] for i in running], chunk, eos)
            running = [i for i in running if requests[i].generated < count and requests[i].tokens[-1] not in eos]
            step += 1
            on_step(step)
        self.free_rows += [row for given in inputs for row in given.kept.tolist()]
        return [request.tokens[len(request.prompt.token_ids) :] for request in requests]

    def preempt(self, request: Request) -> None:
        self.free += request.pages
        request.pages, request.computed = [], 0

    def inputs(self, request: Request) -> Inputs:
        prompt = request.prompt
        ids = torch.tensor(prompt.token_ids)
        units = [(plan, range(plan.units)) for plan in prompt.media]
        visual = self.adapter.visual_tokens(self.adapter.device.upload(request.patches), units) if units else None
        kept = torch.empty(0, dtype=torch.int64)
        if self.adapter.keeps_visual_rows and visual is not None:
            kept, visual = self._keep(visual), None
        is_visual = torch.isin(ids, torch.tensor(sorted(self.adapter.visual_ids)))
        positions = self.adapter.positions(prompt.token_ids, prompt.media)
        scopes = self.adapter.scopes(prompt.token_ids, prompt.media)
        return Inputs(visual, is_visual, positions, self.adapter.next_position(positions), scopes, kept)

    def _keep(self, rows: Tensor) -> Tensor:
        """Put rows [m, width] anywhere in the visual buffer."""
        if self.kv.visual is None:
            self.kv.visual = rows.new_full((VISUAL_ROWS, rows.shape[1]), torch.nan)
        numbers = torch.tensor([self.free_rows.pop() for _ in rows])
        self.kv.visual[self.adapter.device.upload(numbers)] = rows
        return numbers

    def _chunk_end(self, start: int, stop: int, is_visual: Tensor) -> int:
        """`stop`, or the end of the run of visual tokens around it where that must be whole."""
        while self.adapter.whole_runs and stop < len(is_visual) and is_visual[stop - 1 : stop + 1].all():
            stop += 1
        return stop

    def _step(self, requests: Sequence[Request], inputs: Sequence[Inputs], chunk: int, eos: Sequence[int]) -> None:
        spans, ids, visual, masks, positions = [], [], [], [], []
        for request, given in zip(requests, inputs, strict=True):
            rows, is_visual, prompt_positions, offset, *_ = given
            start = request.computed
            stop = self._chunk_end(start, min(len(request.tokens), start + chunk), is_visual)
            while len(request.pages) < self.kv.pages_for(stop):
                request.pages.append(self.free.pop())
            n = len(request.prompt.token_ids)
            masks.append(functional.pad(is_visual[start:stop], (0, max(stop, n) - max(start, n))))
            limits = self.adapter.limits(start, masks[-1])
            wanted = int(stop == len(request.tokens))
            spans.append(self.kv.span(request.pages, start, stop, wanted, limits, given.cross(start, stop)))
            ids += request.tokens[start:stop]
            if rows is not None and is_visual[start:stop].any():
                visual.append(rows[is_visual[:start].sum() : is_visual[:stop].sum()])
            later = torch.arange(max(start, n), max(stop, n)) + offset
            positions.append(
                torch.cat([prompt_positions[:, start:stop], later.expand(len(prompt_positions), -1)], dim=1)
            )
            request.computed = stop
        batch = RaggedBatch.build(spans, self.kv.page_size)
        embeds = self.adapter.embed(torch.tensor(ids), torch.cat(visual) if visual else None, torch.cat(masks))
        hidden = self.adapter.forward(embeds, torch.cat(positions, dim=1), batch, self.kv)
        ready = [row for row, request in enumerate(requests) if request.computed == len(request.tokens)]
        if not ready:
            return
        chosen = [requests[row] for row in ready]
        sampled = sample(
            self.adapter.logits(hidden),
            [request.params for request in chosen],
            [request.tokens for request in chosen],
            [request.generated for request in chosen],
            eos,
        )
        for request, token in zip(chosen, sampled, strict=True):
            request.tokens.append(token.token)


def prompt_logits(adapter: LanguageAdapter, request: Request, wanted: int | None = None) -> torch.Tensor:
    """[n, vocab] for the n tokens of a prompt, in one go, or for the last `wanted`."""
    loop = Loop(adapter)
    try:
        inputs = loop.inputs(request)
        visual, is_visual, positions, *_ = inputs
        embeds = adapter.embed(torch.tensor(request.prompt.token_ids), visual, is_visual)
        limits = adapter.limits(0, is_visual)
        n = len(embeds)
        span = loop.kv.span(range(loop.kv.pages_for(n)), 0, n, wanted, limits, inputs.cross(0, n))
        batch = RaggedBatch.build([span], loop.kv.page_size)
        return adapter.logits(adapter.forward(embeds, positions, batch, loop.kv)).clone()
    finally:
        loop.close()
