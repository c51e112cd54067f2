"""Do a worker's largest step before there are requests, to measure memory and time.

It reads whatever lies in the KV cache, and its results are thrown away.
"""

import math
import time
from collections.abc import Callable, Collection

import torch

from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Rehearse, Rehearsed
from unifiedserve.models.context_length import context_length
from unifiedserve.placement import Network, Stage, networks_of
from unifiedserve.sampling.sample import sample
from unifiedserve.scheduling import Budget, heavy_within_share, largest_share
from unifiedserve.scheduling.profile import StepSeconds
from unifiedserve.worker.language.model import LanguageModel, Rows

_CONTEXT = 4096  # tokens before those of each sequence, if the model has as many
_SAMPLING = SamplingParams(temperature=1.0, top_p=0.9, logprobs=20, seed=0)


def rehearse(model: LanguageModel, hosted: Collection[Stage], budget: Budget, request: Rehearse) -> Rehearsed:
    """Do the largest step of these stages within `budget`; return what it left of the device's own memory.

    Also return the share of the budget with which steps beside streams keep to the target between tokens, tried out
    unless it is known.

    Raises TypeError if that memory is the host's, where nobody asks.
    """
    device = model.adapter.device

    def step(part: Budget, decodes: int) -> None:
        if request.medium is not None and Stage.ENCODE in hosted:
            _encode(model, request.medium, _largest(request.medium, part), request.row_bytes)
        if Network.LANGUAGE in networks_of(hosted):
            _run(model, part, decodes)
        device.fence()

    def heavy(share: float) -> float:
        """Take the seconds of what a worker does beside one that decodes."""
        start = time.monotonic()
        step(heavy_within_share(budget, share), decodes=0)
        return time.monotonic() - start

    step(budget, decodes=budget.max_running)
    room = device.room()
    if room is None:
        raise TypeError("the device has no memory of its own")
    if request.share is not None or not budget.holds or not {Stage.ENCODE, Stage.PREFILL} & set(hosted):
        return Rehearsed(room.free, request.share or 1.0)
    return Rehearsed(room.free, largest_share(heavy, budget.slo_tbt))


def step_seconds(
    model: LanguageModel, hosted: Collection[Stage], medium: MediaPlan | None, row_bytes: int
) -> StepSeconds:
    """Return functions that time steps: a pass over prompt tokens, and a batch of media.

    The media are like this one, if there is one. Stages that are not hosted take no time.
    """
    longest = context_length(model.adapter.config.get_text_config())

    def prompt(tokens: int) -> float:
        if Stage.PREFILL not in hosted:
            return 0.0
        pages = model.kv.pool.allocate(model.kv.pages_for(tokens), 0) if tokens <= longest else None
        if pages is None:
            return math.inf
        try:
            return _timed(model, lambda: model.run([_chunk(model, 0, tokens, pages.tolist())]))
        finally:
            model.kv.release(pages)

    def visual(tokens: int) -> float:
        if medium is None or Stage.ENCODE not in hosted:
            return 0.0
        alike = [range(1)] * max(1, tokens // medium.tokens_per_unit)
        return _timed(model, lambda: _encode(model, medium, alike, row_bytes))

    return StepSeconds(prompt, visual)


def _timed(model: LanguageModel, step: Callable[[], object]) -> float:
    start = time.monotonic()
    step()
    model.adapter.device.fence()
    return time.monotonic() - start


def _largest(medium: MediaPlan, budget: Budget) -> list[range]:
    """Return the units of one medium that a batch has room for."""
    return [range(max(1, min(medium.units, budget.encode_tokens // medium.tokens_per_unit)))]


def _encode(model: LanguageModel, medium: MediaPlan, units: list[range], row_bytes: int) -> None:
    """Encode these units, of a medium of its own each."""
    rows = torch.zeros(sum(map(len, units)) * medium.patches_per_unit, row_bytes, dtype=torch.uint8)
    model.adapter.visual_tokens(model.adapter.device.upload(rows), [(medium, each) for each in units])


def _run(model: LanguageModel, budget: Budget, decodes: int) -> None:
    longest = context_length(model.adapter.config.get_text_config())
    chunk = min(budget.prefill_tokens or longest, longest)
    batch = [_rows(model, min(_CONTEXT, longest - chunk), chunk)]
    batch += [_rows(model, min(_CONTEXT, longest - 1), 1) for _ in range(decodes)]
    hidden = model.run(batch)
    if model.adapter.pooling is None:
        logits = model.next_logits(batch, hidden)
        sample(logits, [_SAMPLING] * len(logits), [[]] * len(logits), [0] * len(logits))


def _rows(model: LanguageModel, start: int, count: int) -> Rows:
    """Return new tokens of a sequence all of whose pages are the first. With a state they are the first ones."""
    return _chunk(model, start, count, [0] * model.kv.pages_for(start + count))


def _chunk(model: LanguageModel, start: int, count: int, pages: list[int]) -> Rows:
    positions = torch.arange(start, start + count).expand(model.adapter.position_rows, -1)
    return Rows([0] * count, positions, start, pages)
