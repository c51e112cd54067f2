"""The paged KV cache: a typed view of a page pool that every process maps."""

from typing import Any

import torch
from torch import Tensor

from ipc_buffers import PagePool
from unifiedserve import _core
from unifiedserve.attention.paged import KERNEL_DTYPES


class KVLayout:
    """How keys and values lie in a page: [layers, 2, page_size, kv_heads, head_dim], K before V."""

    def __init__(self, layers: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        self.shape = (layers, 2, page_size, kv_heads, head_dim)
        self.page_size = page_size
        self.dtype = dtype
        self.page_bytes = layers * 2 * page_size * kv_heads * head_dim * dtype.itemsize

    @staticmethod
    def of(config: Any, page_size: int, dtype: torch.dtype) -> "KVLayout":
        """The layout for a transformers model config, of whose layers those with cross-attention keep nothing here."""
        text = config.get_text_config()
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        layers = text.num_hidden_layers - len(getattr(text, "cross_attention_layers", ()))
        return KVLayout(layers, page_size, text.num_key_value_heads, head_dim, dtype)


class KVCache:
    """Keys and values of all layers over a PagePool whose pages are `layout.page_bytes` each.

    Those of cross-attention are in rows of `visual` [n, width], the visual buffer. Raises ValueError if the pool's
    pages have another size.
    """

    def __init__(self, pool: PagePool, layout: KVLayout, visual: Tensor | None = None) -> None:
        if pool.page_bytes != layout.page_bytes:
            raise ValueError(f"{pool.name}: pages of {pool.page_bytes} bytes, the model needs {layout.page_bytes}")
        self.pool = pool
        self.visual = visual
        self.page_size = layout.page_size
        self._pages = torch.frombuffer(pool.data(), dtype=layout.dtype).view(pool.num_pages, *layout.shape)
        self.native: _core.KvCache | None = None
        if layout.dtype in KERNEL_DTYPES:
            layers, _, page_size, kv_heads, head_dim = layout.shape
            address = self._pages.data_ptr()
            self.native = _core.KvCache(address, pool.num_pages, layers, page_size, kv_heads, head_dim)

    def k(self, layer: int) -> Tensor:
        """[num_pages, page_size, kv_heads, head_dim], strided, no copy."""
        return self._pages[:, layer, 0]

    def v(self, layer: int) -> Tensor:
        """[num_pages, page_size, kv_heads, head_dim], strided, no copy."""
        return self._pages[:, layer, 1]

    def copy_page(self, source: int, target: int) -> None:
        """Copy all layers' keys and values of one page to another."""
        self._pages[target] = self._pages[source]

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)
