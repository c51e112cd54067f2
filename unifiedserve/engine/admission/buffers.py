"""Count the pages of each buffer that a request takes, and refuse too many.

They must be there when all else is idle. Media larger than their buffers go through a window of them, if their units
can be prefilled one after the other.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unifiedserve.config import EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.messages.media import ExpandedPrompt, MediaPlan
from unifiedserve.messages.pages import Window
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.seen import MediumPages, RequestPages
from unifiedserve.scheduling.vision import BufferPages, total_of, window_of


class _Need(NamedTuple):
    """Count pages of a buffer that a request takes, with their use. `pool` names the buffer in each memory."""

    buffer: str
    pool: str
    option: str
    param: str
    pages: int
    what: str


def check_buffers(
    config: EngineConfig, layout: EngineLayout, prompt: ExpandedPrompt, sampling: SamplingParams, *, rolls: bool
) -> tuple[RequestPages, Window | None]:
    """Return the pages that a request takes, and its media's window. They have one if they do not fit whole.

    Only a model that `rolls` has windows. Raises RequestError if a buffer has fewer pages.
    """
    units = [unit for plan in prompt.media for unit in _unit_pages(config, plan)]
    window = _window(config, layout, units) if rolls else None
    kv = (_pages(_cached_tokens(prompt, sampling), config.memory.kv_page_tokens) + layout.state_pages) * sampling.n
    taken = BufferPages(window.patch, window.visual) if window else total_of(units)
    pages = RequestPages(taken.patch, taken.visual, kv)
    there = {pool for _, pool in layout.pools}  # the others are with other nodes, which check them
    for need in _needs(pages, prompt, sampling):
        if need.pool not in there:
            continue
        memory, size = layout.smallest(need.pool)
        where = f" in {memory}" if len(layout.memories) > 1 else ""
        if need.pages > size.pages:
            raise RequestError(
                f"the request needs {need.pages} pages of the {need.buffer} ({need.what}), which has {size.pages}"
                f"{where}: ask for less, or start the server with a larger {need.option}",
                param=need.param,
                code="buffer_too_small",
            )
    return pages, window


def medium_pages(config: EngineConfig, plan: MediaPlan) -> MediumPages:
    """Return the pages that a medium's patches and visual tokens fill."""
    return MediumPages(*total_of(_unit_pages(config, plan)))


def _window(config: EngineConfig, layout: EngineLayout, units: Sequence[BufferPages]) -> Window | None:
    """Return the window for these units. Where pages travel there is none: their reader has room for them all."""
    travels = len(layout.memories) > 1 or not config.machine.workers.is_whole
    if travels or config.scheduling.no_overlap:
        return None
    return window_of(units, BufferPages(layout.only.patch.pages, layout.only.visual.pages))


def _unit_pages(config: EngineConfig, plan: MediaPlan) -> list[BufferPages]:
    patch, tokens = _pages(plan.patches_per_unit, config.memory.patch_page_rows), config.memory.visual_page_tokens
    return [BufferPages(patch, _pages(plan.unit_tokens(unit), tokens)) for unit in range(plan.units)]


def _cached_tokens(prompt: ExpandedPrompt, sampling: SamplingParams) -> int:
    return len(prompt.token_ids) + max(sampling.max_tokens or 0, 1) - 1  # the last one's KV is not needed


def _needs(pages: RequestPages, prompt: ExpandedPrompt, sampling: SamplingParams) -> Iterator[_Need]:
    what = f"{_cached_tokens(prompt, sampling)} tokens (prompt and max_tokens) times n={sampling.n}"
    yield _Need("KV cache", "kv", "--kv-cache-mib", "max_tokens", pages.kv, what)
    what = f"{sum(plan.patches for plan in prompt.media)} patches"
    yield _Need("patch buffer", "patch", "--patch-buffer-mib", "messages", pages.patch, what)
    what = f"{sum(plan.tokens for plan in prompt.media)} visual tokens"
    yield _Need("visual buffer", "visual", "--visual-buffer-mib", "messages", pages.visual, what)


def _pages(rows: int, page_rows: int) -> int:
    return -(-rows // page_rows)
