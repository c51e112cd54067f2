"""Small workloads on small hardware, for which plans are quick."""

import datetime

import msgspec

from unifiedserve.bench.slo import Slo
from unifiedserve.placement import Stage
from unifiedserve.planning.case import Case
from unifiedserve.planning.workload import RequestSize, Workload
from unifiedserve.profiles import DeviceSize, HardwareProfile, ModelSizes
from unifiedserve.scheduling.simulation import StageCosts

COSTS = StageCosts(
    decode_pass=0.02,
    sequence=0.001,
    context_token=1e-7,
    half=1.5,
    prefill_pass=0.02,
    prompt_token=0.0004,
    prompt_context=1e-8,
    encode_batch=0.01,
    visual_token=0.001,
    image=0.004,
    video_second=0.01,
    intake=0.001,
    message=0.0005,
    reply=0.0005,
)


def profile(cores: int = 2, costs: StageCosts = COSTS, memory_gib: float = 8.0) -> HardwareProfile:
    return HardwareProfile(
        model="tiny",
        hardware="a machine",
        date=datetime.date(2026, 11, 28),
        device=DeviceSize(kind="cpu", cores=cores, memory_gib=memory_gib),
        model_sizes=ModelSizes(
            weights_gib={"encoder": 0.1, "language": 0.5}, kv_token_bytes=4096, image_tokens=100, frame_tokens=20
        ),
        costs=costs,
    )


def gpus(memory_gib: float = 80.0) -> HardwareProfile:
    """Return the profile of a GPU whose stages slow each other."""
    return msgspec.structs.replace(
        profile(memory_gib=memory_gib),
        device=DeviceSize(kind="cuda", memory_gib=memory_gib, video_engines=2),
        interference={
            Stage.DECODE: {Stage.PREFILL: 1.6, Stage.ENCODE: 1.3},
            Stage.PREFILL: {Stage.DECODE: 1.2, Stage.ENCODE: 1.8},
            Stage.ENCODE: {Stage.PREFILL: 1.7, Stage.DECODE: 1.1, Stage.VISION: 1.05},
        },
    )


def requests(count: int = 12) -> Workload:
    """Return texts, images and videos in turn."""
    kinds = [
        RequestSize("text", 60, 6),
        RequestSize("image", 30, 6, pixels=(80_000,)),
        RequestSize("text", 200, 4),
        RequestSize("video", 30, 4, seconds=(8.0,)),
    ]
    return Workload("some", tuple(kinds[number % 4] for number in range(count)), tuple(map(float, range(count))))


def case(slo: Slo = Slo(ttft=0.8, tbt=0.2), count: int = 12, cores: int = 2) -> Case:  # noqa: B008
    return Case(profile(cores), requests(count), slo, frames=4)
