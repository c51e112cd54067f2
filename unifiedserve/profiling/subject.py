"""Identify what is measured: a model as it is loaded, and the device that computes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device, select_device
from unifiedserve.doctor import nvdec
from unifiedserve.engine.buffer_sizes import dtype_of, plan_layout
from unifiedserve.engine.checkpoint import load_checkpoint
from unifiedserve.engine.known_profile import digest_of
from unifiedserve.engine.weight_source import wanted_by, weight_source
from unifiedserve.memory.weights import weights_bytes
from unifiedserve.messages.media import MediaOptions, MediaPlan, PromptError, VideoInfo
from unifiedserve.models.default import DEFAULT_MODEL
from unifiedserve.models.processor import Processor
from unifiedserve.placement import FIRST_MEMORY, Network
from unifiedserve.profiles import DeviceSize, ModelSizes, hardware_name, versions_here

_GIB = 2**30
_SIDE = 448  # pixels of a typical image, and of a frame of a video
_CLIP = VideoInfo(num_frames=300, fps=30.0, duration=10.0, width=_SIDE, height=_SIDE)


class Subject(NamedTuple):
    """Pair a model with a device. `page_bytes` are those of a page of each buffer that travels."""

    model: str
    digest: str
    hardware: str
    versions: dict[str, str]
    device: DeviceSize
    sizes: ModelSizes
    page_bytes: dict[str, int]
    encoder_layers: int

    @classmethod
    def of(cls, config: EngineConfig) -> "Subject":
        """Look at what the options name; nothing is started. Raises ConfigError."""
        device = select_device(config)
        model_dir, processor, _ = load_checkpoint(config)
        dtype = dtype_of(config, device)
        layout = plan_layout(config, config.machine.workers, processor, dtype, "none", "none", device)
        memory = layout.memories[FIRST_MEMORY]
        weights = _weights_gib(config, model_dir, processor, device, dtype)
        room = device.room()
        return cls(
            model=config.checkpoint.served_model_name or config.checkpoint.model or DEFAULT_MODEL,
            digest=digest_of(config, model_dir, dtype),
            hardware=hardware_name(room.name if room else None),
            versions=versions_here(gpu=room is not None),
            device=_device_size(device),
            sizes=_model_sizes(processor, weights, memory.kv.page_bytes // config.memory.kv_page_tokens),
            page_bytes={"kv": memory.kv.page_bytes, "visual": memory.visual.page_bytes},
            encoder_layers=encoder_layers(model_dir),
        )


def _device_size(device: Device) -> DeviceSize:
    room = device.room()
    if room is None:
        return DeviceSize(
            kind=CPU.name, cores=len(os.sched_getaffinity(0)), memory_gib=_gib(psutil.virtual_memory().total)
        )
    engines = (check.details.get("engines", 0) for check in nvdec.probe() if check.details)
    return DeviceSize(kind="cuda", memory_gib=_gib(room.total), video_engines=next(engines, 0))


def _model_sizes(processor: Processor, weights: dict[Any, float], kv_token_bytes: int) -> ModelSizes:
    """Return the sizes, of media as those that a typical request has."""
    image = _planned(lambda: processor.plan_image(_SIDE, _SIDE, MediaOptions()))
    clip = _planned(lambda: processor.plan_video(_CLIP, MediaOptions()))
    return ModelSizes(
        weights_gib=weights,
        kv_token_bytes=kv_token_bytes,
        image_tokens=image.tokens if image else 0,
        frame_tokens=round(clip.tokens / len(clip.frame_indices), 1) if clip else 0.0,
        patches_a_token=max(1, round(image.patches / image.tokens)) if image else 0,
        keeps_visual=processor.keeps_visual_rows,
    )


def _weights_gib(
    config: EngineConfig, model_dir: Path, processor: Processor, device: Device, dtype: str
) -> dict[Any, float]:
    tensors = weight_source(config, model_dir, processor.config, device, dtype)
    own: torch.dtype = getattr(torch, dtype)
    names = {"encoder": Network.ENCODER, "language": Network.LANGUAGE}
    return {
        name: _gib(weights_bytes(tensors, own, wanted_by([network], processor.config)))
        for name, network in names.items()
    }


def encoder_layers(model_dir: Path) -> int:
    """Return how many layers a checkpoint's vision encoder has, under the names of most families; 1 if under none."""
    vision = json.loads((model_dir / "config.json").read_text()).get("vision_config", {})
    return int(vision.get("depth") or vision.get("num_hidden_layers") or 1)


def _planned(plan: Callable[[], MediaPlan]) -> MediaPlan | None:
    """Return a plan; None of a model that takes no such media."""
    try:
        return plan()
    except PromptError:
        return None


def _gib(size: int) -> float:
    return round(size / _GIB, 3)
