"""Count the pages of the buffers that a placement has on some hardware."""

from unifiedserve.config.memory import MIB, MemoryOptions
from unifiedserve.placement import Network, Placement, networks_of
from unifiedserve.profiles import HardwareProfile
from unifiedserve.scheduling.simulation import Arrival, FreePages
from unifiedserve.scheduling.vision import BufferPages, total_of, window_of

_DEFAULTS = MemoryOptions()
_PATCH_BYTES = 3 * 2 * 14 * 14  # a patch of Qwen2.5-VL: two frames of RGB, 14x14, in uint8
_VISUAL_BYTES = 2 * 4096  # a visual token as wide as an 8B model's, in bfloat16
_AMPLE = 1 << 20  # pages where nothing is known
_GIB = 1024  # MiB
_CPU_SHARE = 0.125  # of a machine's memory for the KV cache, beside weights, workers and what else runs there
_LEAST_KV_MIB = 64


def free_pages(profile: HardwareProfile, placement: Placement) -> FreePages | None:
    """Return the pages of each memory; None if the weights leave no room for a KV cache on one of its devices."""
    mib = kv_mib(profile, placement)
    if mib < _LEAST_KV_MIB:
        return None
    token_bytes = profile.model_sizes.kv_token_bytes
    kv = mib * MIB // (token_bytes * _DEFAULTS.kv_page_tokens) if token_bytes else _AMPLE
    return FreePages(
        kv=kv,
        visual=(_DEFAULTS.visual_buffer_mib + _DEFAULTS.visual_cache_mib)
        * MIB
        // (_VISUAL_BYTES * _DEFAULTS.visual_page_tokens),
        patch=_DEFAULTS.patch_buffer_mib * MIB // (_PATCH_BYTES * _DEFAULTS.patch_page_rows),
        visual_page_tokens=_DEFAULTS.visual_page_tokens,
    )


def is_refused(arrival: Arrival, prompt: int, free: FreePages, *, rolls: bool) -> bool:
    """Tell whether a server refuses a request of so many tokens: a buffer is too small even when all else is idle.

    With `rolls` its media may go through a window (as `engine/admission/buffers.py`).
    """
    if -(-(prompt + arrival.generate - 1) // _DEFAULTS.kv_page_tokens) > free.kv:
        return True
    units = [BufferPages(arrival.patch_pages, -(-unit // free.visual_page_tokens)) for unit in arrival.units]
    buffers, total = BufferPages(free.patch, free.visual), total_of(units)
    fits = total.patch <= buffers.patch and total.visual <= buffers.visual
    return not (fits or (rolls and window_of(units, buffers)))


def kv_mib(profile: HardwareProfile, placement: Placement) -> int:
    """Return the MiB of the KV cache of each memory: what is left beside weights where most of these are."""
    total, weights = profile.device.memory_gib * _GIB, profile.model_sizes.weights_gib
    if not total:
        return _AMPLE
    sizes = {
        Network.ENCODER: weights.get("encoder", 0.0) * _GIB,
        Network.LANGUAGE: weights.get("language", 0.0) * _GIB,
    }
    most = max(
        sum(sizes[network] for network in networks_of(placement.hosted_in(memory))) for memory in placement.memories
    )
    buffers = _DEFAULTS.visual_buffer_mib + _DEFAULTS.visual_cache_mib + _DEFAULTS.patch_buffer_mib
    if profile.device.kind == "cpu":
        return int(min(_CPU_SHARE * total, total - most - buffers))
    return int(_DEFAULTS.gpu_memory_utilization * total - most - buffers)
