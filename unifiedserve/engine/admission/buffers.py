"""Whether the buffers are large enough for a request when all else is idle."""

from collections.abc import Iterator
from typing import NamedTuple

from unifiedserve.config import EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.memory.shared import MemoryLayout
from unifiedserve.messages.media import ExpandedPrompt
from unifiedserve.messages.sampling_params import SamplingParams


class _Need(NamedTuple):
    """Pages of a buffer that a request takes, of those it has, and what they are for."""

    buffer: str
    option: str
    param: str
    pages: int
    total: int
    what: str


def check_buffers(config: EngineConfig, layout: MemoryLayout, prompt: ExpandedPrompt, sampling: SamplingParams) -> None:
    """Raise RequestError if a buffer has fewer pages than the request needs."""
    for need in _needs(config, layout, prompt, sampling):
        if need.pages > need.total:
            raise RequestError(
                f"the request needs {need.pages} pages of the {need.buffer} ({need.what}), which has {need.total}: "
                f"ask for less, or start the server with a larger {need.option}",
                param=need.param,
                code="buffer_too_small",
            )


def _needs(
    config: EngineConfig, layout: MemoryLayout, prompt: ExpandedPrompt, sampling: SamplingParams
) -> Iterator[_Need]:
    tokens = len(prompt.token_ids) + max(sampling.max_tokens or 0, 1) - 1  # the last one's KV is not needed
    kv = (_pages(tokens, config.kv_page_tokens) + layout.state_pages) * sampling.n
    what = f"{tokens} tokens (prompt and max_tokens) times n={sampling.n}"
    yield _Need("KV cache", "--kv-cache-mib", "max_tokens", kv, layout.kv.pages, what)
    patches = sum(plan.units * _pages(plan.patches_per_unit, config.patch_page_rows) for plan in prompt.media)
    what = f"{sum(plan.patches for plan in prompt.media)} patches"
    yield _Need("patch buffer", "--patch-buffer-mib", "messages", patches, layout.patch.pages, what)
    units = [plan.unit_tokens(unit) for plan in prompt.media for unit in range(plan.units)]
    visual = sum(_pages(tokens, config.visual_page_tokens) for tokens in units)
    what = f"{sum(plan.tokens for plan in prompt.media)} visual tokens"
    yield _Need("visual buffer", "--visual-buffer-mib", "messages", visual, layout.visual.pages, what)


def _pages(rows: int, page_rows: int) -> int:
    return -(-rows // page_rows)
