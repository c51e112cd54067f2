"""View the paged KV cache, a page pool that every process maps, with types."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ipc_buffers import PagePool
from unifiedserve.attention import RaggedBatch, Span
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.memory.number_types import ITEMSIZE
from unifiedserve.memory.recurrent_state import RecurrentStates, StateLayout
from unifiedserve.ranks.parts import kv_heads_of

if TYPE_CHECKING:
    from torch import Tensor

SCALE_BYTES = 4


class KVLayout:
    """Lay keys and values out in a page: [layers, 2, page_size, kv_heads, head_dim], K before V.

    Of int8 they are codes: times their scales, float32 [layers, 2, kv_heads, page_size] at the page's end, they are
    the keys and values.

    A sequence's recurrent state, if the model has one, is in `state_pages` pages before those of its tokens.

    Of several ranks, each with `kv_heads`, a page's number is the same to all. A page holds such a part for each of the
    `parts` that share a memory, one behind the other.
    """

    def __init__(
        self,
        layers: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: str,
        state: StateLayout | None = None,
        parts: int = 1,
    ) -> None:
        self.shape = (layers, 2, page_size, kv_heads, head_dim)
        self.page_size = page_size
        self.dtype = dtype
        self.scales_shape = (layers, 2, kv_heads, page_size) if dtype == "int8" else None
        self.data_bytes = prod(self.shape) * ITEMSIZE[dtype]
        scales = prod(self.scales_shape) if self.scales_shape else 0
        self.scales_start = -(-self.data_bytes // SCALE_BYTES) * SCALE_BYTES
        self.part_bytes = self.scales_start + scales * SCALE_BYTES
        self.page_bytes = parts * self.part_bytes
        self.state = state
        self.state_pages = -(-state.bytes // self.page_bytes) if state else 0

    @staticmethod
    def of(config: Any, page_size: int, dtype: str, ranks: int = 1, parts: int | None = None) -> KVLayout:
        """Return the layout for a transformers model config; layers with cross-attention keep nothing here.

        Of several `ranks` each keeps its own heads; `parts` of them share a memory (None: all).
        Raises ConfigError if heads cannot be divided among them.
        """
        text = config.get_text_config()
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        state = StateLayout.of(text)
        crossing = len(getattr(text, "cross_attention_layers", ()))
        layers = text.num_hidden_layers - crossing - (state.layers if state else 0)
        kv_heads = kv_heads_of(text, ranks)
        return KVLayout(layers, page_size, kv_heads, head_dim, dtype, state, ranks if parts is None else parts)


def kv_layout(config: EngineConfig, model_config: Any, dtype: str, device: Device) -> KVLayout:
    """Return how an engine lays keys and values of a model of a dtype out: all of its workers do alike.

    Raises ConfigError as `KVLayout.of`.
    """
    ranks, sizes = config.machine.tensor_parallel_size, config.memory
    return KVLayout.of(model_config, sizes.kv_page_tokens, sizes.kv_dtype(dtype), ranks, 1 if device.apart else ranks)


class KVPages:
    """Hold keys and values of all layers in pages of `layout.page_bytes`, as `PagedKV`.

    Of several ranks whose parts share a page this is the part of that number; whole pages are copied.
    """

    def __init__(self, data: Tensor, layout: KVLayout, device: Device, part: int = 0) -> None:
        """Take the pages, uint8 [n, page_bytes] on the device."""
        self.device = device
        self.page_size = layout.page_size
        self.state_pages = layout.state_pages
        self._state = layout.state
        self._bytes = data
        pages = len(data)
        own = data[:, part * layout.part_bytes : (part + 1) * layout.part_bytes]
        self.pages = own[:, : layout.data_bytes].view(getattr(torch, layout.dtype)).view(pages, *layout.shape)
        self.scales: Tensor | None = None
        if layout.scales_shape:
            self.scales = own[:, layout.scales_start :].view(torch.float32).view(pages, *layout.scales_shape)

    def k(self, layer: int) -> Tensor:
        """Return [num_pages, page_size, kv_heads, head_dim], strided, no copy."""
        return self.pages[:, layer, 0]

    def v(self, layer: int) -> Tensor:
        """Return [num_pages, page_size, kv_heads, head_dim], strided, no copy."""
        return self.pages[:, layer, 1]

    def states(self, batch: RaggedBatch) -> RecurrentStates | None:
        """Return the recurrent states of a batch's sequences, to be stored after the step; None without such."""
        if self._state is None:
            return None
        numbers = self.device.upload(torch.tensor(batch.states))
        return RecurrentStates(self._state, self._bytes, numbers, self.device.upload(batch.begins.nonzero()[:, 0]))

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy all that is in some pages to others."""
        old, new = (self.device.upload(torch.tensor(numbers, dtype=torch.int64)) for numbers in (sources, targets))
        self._bytes.index_copy_(0, new, self._bytes.index_select(0, old))

    def tokens_held(self, tokens: int) -> int:
        """Return as how many tokens a sequence may become here, of so many."""
        return min(tokens, (len(self.pages) - self.state_pages) * self.page_size)

    def pages_for(self, tokens: int) -> int:
        """Return the pages that a sequence of `tokens` tokens needs, those of its state included."""
        return self.state_pages - (-tokens // self.page_size)

    def span(self, pages: Sequence[int], start: int, stop: int, *more: Any) -> Span:
        """Return a sequence's part of a step, from all of its pages; `more` are `wanted`, `limits` and `cross`."""
        span = Span(pages[self.state_pages :], start, stop, *more)
        return span._replace(state=pages[: self.state_pages])


class KVCache(KVPages, DevicePages):
    """Hold keys and values over a PagePool.

    Those of cross-attention are in rows of `visual` [n, width], the visual buffer. Raises ValueError if pages of the
    pool have another size than the layout's.
    """

    def __init__(
        self, pool: PagePool, layout: KVLayout, visual: Tensor | None = None, device: Device = CPU, part: int = 0
    ) -> None:
        if pool.page_bytes != layout.page_bytes:
            raise ValueError(f"{pool.name}: pages of {pool.page_bytes} bytes, the model needs {layout.page_bytes}")
        DevicePages.__init__(self, pool, device)
        KVPages.__init__(self, self.data(), layout, device, part)
        self.visual = visual
