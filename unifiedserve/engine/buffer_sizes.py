"""How large the buffers are to be, from options and the model's shapes."""

import torch

from unifiedserve.config import DEFAULT_KV_CACHE_MIB, MIB, EngineConfig
from unifiedserve.device import Device
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVLayout
from unifiedserve.memory.shared import MemoryLayout, PoolSize
from unifiedserve.models.base import Processor


def dtype_of(config: EngineConfig, device: Device) -> str:
    """Return the name of the dtype that weights and activations are to have."""
    return device.best_dtype() if config.checkpoint.dtype == "auto" else config.checkpoint.dtype


def plan_layout(
    config: EngineConfig, processor: Processor, dtype: str, engine_id: str, weights: str, place: str
) -> MemoryLayout:
    """Return the layout as configured; on a device with memory of its own the KV cache may still become another size.

    `weights` names their memory. Raises ConfigError for a buffer without a single page.
    """
    sizes = config.memory
    kv_dtype: torch.dtype = getattr(torch, sizes.kv_dtype(dtype))
    own: torch.dtype = getattr(torch, dtype)
    kv = KVLayout.of(processor.config, sizes.kv_page_tokens, kv_dtype)
    return MemoryLayout(
        engine_id=engine_id,
        weights=weights,
        kv=_pool("kv_cache_mib", sizes.kv_cache_mib or DEFAULT_KV_CACHE_MIB, kv.page_bytes),
        patch=_pool(
            "patch_buffer_mib",
            sizes.patch_buffer_mib,
            sizes.patch_page_rows * processor.patch_row_bytes,
        ),
        visual=_pool(
            "visual_buffer_mib",
            sizes.visual_buffer_mib + sizes.visual_cache_mib,
            sizes.visual_page_tokens * processor.visual_dim * own.itemsize,
        ),
        instances=tuple(instance.name for instance in config.machine.workers.instances),
        state_pages=kv.state_pages,
        place=place,
    )


def _pool(option: str, mib: int, page_bytes: int) -> PoolSize:
    pages = mib * MIB // page_bytes
    if pages == 0:
        raise ConfigError(f"{option}={mib} is too small: one page of this model takes {page_bytes} bytes")
    return PoolSize(pages, page_bytes)
