"""Size the buffers, from options and the model's shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from unifiedserve.config import DEFAULT_KV_CACHE_MIB, MIB, EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import kv_layout
from unifiedserve.memory.number_types import ITEMSIZE
from unifiedserve.memory.shared import EngineLayout, MemoryLayout, PoolSize
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import divides_encoder
from unifiedserve.placement import Network, Placement, Stage, networks_of
from unifiedserve.placement.instances import number_of_memory


def dtype_of(config: EngineConfig, device: Device) -> str:
    """Return the name of the dtype that weights and activations are to have."""
    return device.best_dtype() if config.checkpoint.dtype == "auto" else config.checkpoint.dtype


def plan_layout(
    config: EngineConfig,
    placement: Placement,
    processor: Processor,
    dtype: str,
    engine_id: str,
    weights: str,
    device: Device,
) -> EngineLayout:
    """Return the layout as configured; on a device with memory of its own the KV cache may still become another size.

    Each memory has what the stages of its instances need, in the memory of its GPU, or the host's. Names of its part of
    the weights begin with `weights`. Raises ConfigError for a buffer without a single page, for options of the
    host's memories on a device with memory of its own, where requests could wait for each other's pages, and for a
    language model that cannot be divided among the ranks that are asked for.
    """
    sizes = config.memory
    on_nodes = config.machine.memories == "numa"
    if device.name != CPU.name:
        _check_for_gpus(config, placement)
    if placement.sends_back and processor.keeps_visual_rows:
        raise ConfigError(
            f"--placement {placement.name}: answers of this model hold visual tokens, which would come back to the "
            "memory where they were encoded, and wait there for those that are to leave it: give a worker that encodes "
            "and one that prefills the same memory"
        )
    ranks = config.machine.tensor_parallel_size
    _check_divisible(ranks, device, processor.config.get_text_config(), dtype)
    _check_encoder_ranks(config, placement, processor)
    kv = kv_layout(config, processor.config, dtype, device)
    pools = {
        "kv": _pool("kv_cache_mib", sizes.kv_cache_mib or DEFAULT_KV_CACHE_MIB, kv.page_bytes),
        "patch": _pool("patch_buffer_mib", sizes.patch_buffer_mib, sizes.patch_page_rows * processor.patch_row_bytes),
        "visual": _pool(
            "visual_buffer_mib",
            sizes.visual_buffer_mib + sizes.visual_cache_mib,
            sizes.visual_page_tokens * processor.visual_dim * ITEMSIZE[dtype],
        ),
    }
    needs = _needs(processor)
    return EngineLayout(
        engine_id=engine_id,
        memories={
            memory: _memory(
                placement.hosted_in(memory),
                needs,
                pools,
                f"{weights}-{memory}",
                device.place_of(placement.gpu_of(memory)),
                number_of_memory(memory) if on_nodes else None,
                [device.place_of_rank(device.place_of(placement.gpu_of(memory)), rank) for rank in range(1, ranks)],
                apart=device.apart,
            )
            for memory in placement.memories
        },
        instances=tuple(instance.name for instance in placement.instances),
        state_pages=kv.state_pages,
        sequences=config.scheduling.max_running,
    )


def _check_for_gpus(config: EngineConfig, placement: Placement) -> None:
    """Raise ConfigError for options of the host's memories, and for ranks whose pages would travel."""
    holders = [memory for memory in placement.memories if {Stage.PREFILL, Stage.DECODE} & placement.hosted_in(memory)]
    if (ranks := config.machine.tensor_parallel_size) > 1 and len(holders) > 1:
        raise ConfigError(
            f"--tensor-parallel-size {ranks}: --placement {placement.name} has keys and values in {len(holders)} "
            "memories, and those of several GPUs do not travel yet; have prefill and decode in one, as in "
            "e@cuda:0+pd@cuda:1"
        )
    _ = config.machine.gpus_of_memories
    if not placement.is_whole:
        raise ConfigError(
            f"--placement {placement.name}: nodes of stage pools read pages of host memory, and none of GPUs yet; give "
            "--device cpu, or a placement with all stages"
        )
    if config.machine.memories == "numa":
        raise ConfigError("--memories numa: on GPUs no page is in a node's memory; leave it out, or give --device cpu")
    if config.machine.carrier != "auto":
        raise ConfigError(
            f"--carrier {config.machine.carrier}: is for memories of the host, and between those of GPUs pages are "
            "copied by CUDA IPC; leave it out, or give --device cpu"
        )


def _check_divisible(ranks: int, device: Device, text: Any, dtype: str) -> None:
    """Raise ConfigError if the device cannot divide a language model's layers among several ranks."""
    if ranks == 1 or device.divides(text, dtype):
        return
    raise ConfigError(
        f"--tensor-parallel-size {ranks}: a language model of type {text.model_type} in {dtype} cannot be divided "
        "among ranks; leave it out, or serve one of those in the table of docs/models.md"
    )


def _check_encoder_ranks(config: EngineConfig, placement: Placement, processor: Processor) -> None:
    """Raise ConfigError if ranks cannot share the encoder of a worker as they are to."""
    machine = config.machine
    shared = [each for each in placement.instances if machine.encoder_ranks_of(each).total > 1]
    if shared and config.scheduling.dual_streams == "on":
        raise ConfigError(
            f"--encoder-ranks {machine.encoder_ranks}: ranks do one thing after another, and --dual-streams on has the "
            "encoder run beside the language model: leave one of them out"
        )
    if shared and machine.shared_encoder.tensor > 1 and not divides_encoder(processor.config):
        raise ConfigError(
            f"--encoder-ranks {machine.encoder_ranks}: the heads of the vision encoder of a model of type "
            f"{processor.config.model_type} cannot be divided; give dp{machine.tensor_parallel_size}"
        )


def _needs(processor: Processor) -> dict[Stage, set[str]]:
    """Return the pools that each stage needs in the memory of its instance; vision writes to those of the encoders."""
    kept = {"visual"} if processor.keeps_visual_rows else set[str]()  # by answers
    return {
        Stage.VISION: set(),
        Stage.ENCODE: {"patch", "visual"},
        Stage.PREFILL: {"visual", "kv"},
        Stage.DECODE: {"kv", *kept},
    }


def _memory(
    hosted: Collection[Stage],
    needs: Mapping[Stage, set[str]],
    pools: Mapping[str, PoolSize],
    weights: str,
    place: str,
    node: int | None,
    further: Sequence[str],
    *,
    apart: bool,
) -> MemoryLayout:
    """Return the layout of a memory whose instances host these stages; `further` ranks have these places."""
    there, networks = {pool for stage in hosted for pool in needs[stage]}, networks_of(hosted)
    sizes = {name: size if name in there else PoolSize(0, size.page_bytes) for name, size in pools.items()}
    speaks = Network.LANGUAGE in networks
    return MemoryLayout(
        **sizes,
        weights=weights if networks else "",
        stages=tuple(
            stage for stage, needed in needs.items() if needed <= there and stage.network in (None, *networks)
        ),
        place=place,
        node=node,
        networks=networks,
        further_weights=tuple(f"{weights}-rank{rank}" for rank, _ in enumerate(further, 1)) if speaks else (),
        further_places=tuple(further) if speaks and apart else (),
    )


def _pool(option: str, mib: int, page_bytes: int) -> PoolSize:
    pages = mib * MIB // page_bytes
    if pages == 0:
        raise ConfigError(f"{option}={mib} is too small: one page of this model takes {page_bytes} bytes")
    return PoolSize(pages, page_bytes)
