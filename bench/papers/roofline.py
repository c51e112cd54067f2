"""Stage costs of models that no machine here can run, from their shapes: profiles of the papers' hardware.

    python bench/papers/roofline.py        # writes profiles/*.toml

Papers draw their stage costs, and few of their texts give numbers. What is not given is derived: floating-point
operations over a stated part of the peak, bytes over a stated part of the bandwidth, and so much for launches. Each
number's source says which. HydraInfer's Tables 1 and 2 count in the same way.
"""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from unifiedserve.placement import Stage
from unifiedserve.profiles import DeviceSize, HardwareProfile, ModelSizes, write_profile
from unifiedserve.scheduling.simulation import StageCosts

FOLDER = Path(__file__).parents[2] / "profiles"
DATE = datetime.date(2026, 11, 28)
KV_PAGE = 16  # tokens
VISUAL_PAGE = 16
GIB = 2**30
ATTENTION = 0.7  # of the efficiency of matrix products
BANDWIDTH = 0.8  # of the peak: what a decode step reaches by our own measurements (docs/gpu.md: 4.78 of 6.13 ms)
SAMPLING = 2e-5  # seconds for each sequence of a step
#: the part of launches that a line has at its foot: kernels hide them beyond a size, so that a pass takes the longer of
#: launches and operations; a line through half, once, twice and four times that size meets zero at 0.3 of the launches
FOOT = 0.3


class Gpu(NamedTuple):
    """A GPU by its data sheet: dense 16-bit operations and bytes a second."""

    name: str
    flops: float
    bandwidth: float
    memory_gib: int
    video_engines: int
    link: float  # bytes a second to another GPU


A100 = Gpu("A100-SXM4-80GB", 312e12, 2.04e12, 80, 5, 250e9)
H100 = Gpu("NVIDIA H100 80GB HBM3", 989e12, 3.35e12, 80, 7, 370e9)
H800 = Gpu("H800-SXM5-80GB", 989e12, 3.35e12, 80, 7, 170e9)


class Language(NamedTuple):
    """A language model: weights of its layers, widths, and bytes of the KV cache for each token."""

    weights: float
    layers: int
    width: int
    kv_token_bytes: int
    gib: float


class Encoder(NamedTuple):
    """A vision encoder: its weights, layers, width, and how it makes visual tokens of patches.

    A tile of `patches` attends to itself, and gives `tokens` visual tokens (as many as a typical image has of them for
    each of its tiles).
    """

    weights: float
    layers: int
    width: int
    patches: int
    tokens: float
    gib: float

    @property
    def flops_a_token(self) -> float:
        """Operations for a visual token."""
        patch = 2 * self.weights + 4 * self.patches * self.width * self.layers
        return patch * self.patches / self.tokens


class Subject(NamedTuple):
    """What a profile is of, and what is assumed of it."""

    model: str
    gpu: Gpu
    language: Language
    encoder: Encoder
    efficiency: float  # of matrix products, as a part of the peak
    launch: float  # seconds of a pass that launches alone take
    image_tokens: int
    frame_tokens: float = 0.0
    gpus: int = 1  # that compute each pass together
    encoder_efficiency: float = 0.0  # 0: as the language model's
    keeps_visual: bool = False
    given: Mapping[str, tuple[float, str]] = {}  # costs that a paper's text gives, with their sources
    interference: Mapping[Stage, Mapping[Stage, float]] = {}
    interference_source: str = ""
    note: str = ""


VICUNA = Language(6.48e9, 32, 4096, 2 * 32 * 4096 * 2, 12.6)
QWEN_7B = Language(6.53e9, 28, 3584, 2 * 28 * 512 * 2, 14.2)
QWEN_32B = Language(31.2e9, 64, 5120, 2 * 64 * 1024 * 2, 61.0)
INTERNLM_7B = Language(6.98e9, 32, 4096, 2 * 32 * 1024 * 2, 14.4)
INTERNLM_20B = Language(18.7e9, 48, 6144, 2 * 48 * 1024 * 2, 37.0)
LLAMA_8B = Language(6.98e9, 32, 4096, 2 * 32 * 1024 * 2, 18.0)  # with the layers of cross-attention

CLIP = Encoder(0.303e9, 24, 1024, 577, 576, 0.6)
CLIP_TILES = CLIP._replace(tokens=2340 / 5)  # of a picture of 4:3: five tiles, whose padding is taken away
SIGLIP = Encoder(0.413e9, 27, 1152, 1024, 64, 0.8)
INTERNVIT = Encoder(0.304e9, 24, 1024, 1025, 256, 0.6)
INTERNVIT_6B = Encoder(5.54e9, 45, 3200, 1025, 256, 11.1)
VIT_H = Encoder(0.63e9, 40, 1280, 4 * 1601, 4 * 1601, 1.4)  # tiles of one picture attend to each other
QWEN_VIT = Encoder(0.63e9, 32, 1280, 256, 64, 1.3)  # a frame pair of 224 x 224

#: Qwen2.5-VL-7B's shape on an H100, by MPS: bench/results/gpu/h100-ninth, item interference
H100_BESIDE = {
    Stage.DECODE: {Stage.PREFILL: 1.9, Stage.ENCODE: 1.05},
    Stage.PREFILL: {Stage.DECODE: 1.45, Stage.ENCODE: 1.2, Stage.PREFILL: 1.8},
    Stage.ENCODE: {Stage.DECODE: 1.1, Stage.PREFILL: 1.6, Stage.ENCODE: 1.8},
}
WITH_VIDEO = {**H100_BESIDE, Stage.VISION: {Stage.DECODE: 1.48, Stage.ENCODE: 1.7, Stage.PREFILL: 1.7}}
H100_SOURCE = (
    "measured by us on an H100 with Qwen2.5-VL-7B's shape by MPS (bench/results/gpu/h100-ninth): chunks of 512 tokens, "
    "1 to 64 sequences; UnifiedServe's Fig. 6 has the matrix for an A100, its text no numbers of it"
)
VIDEO_SOURCE = f"{H100_SOURCE}; vision: UnifiedServe §2.2, 48 to 70 % longer, and under 2 % the other way"

NVDEC_1080P = 700.0  # frames a second of one engine (docs/gpu.md, 1080p H.264)
VIDEO_ON_ENGINES = {
    "video_second": (
        30 / NVDEC_1080P,
        "30 frames over 700 a second of one NVDEC engine (docs/gpu.md, 1080p H.264 on an H100)",
    ),
    "image": (0.0067, "a JPEG of one megapixel on a core of the host, of 12 of which 80 ms are measured (docs/gpu.md)"),
}

_H100 = "measured by us on an H100 (docs/gpu.md): "
ON_H100 = {
    **VIDEO_ON_ENGINES,
    "decode_pass": (0.006, _H100 + "6.13 ms with one sequence of 4,096 tokens, by CUDA graph"),
    "lone_step": (0.0061, _H100 + "6.13 ms with one sequence of 4,096 tokens, by CUDA graph"),
    "context_token": (2.27e-8, _H100 + "12.1 ms with 64 sequences of 4,096 tokens, 6.90 with 8"),
    "prompt_token": (2.6e-5, _H100 + "14.3 ms for 512 tokens (h100-ninth, interference), less the foot"),
    "encode_batch": (0.0079, _H100 + "13.5 ms for 2,048 patches, 30.6 for 8,192, by four to a visual token"),
    "visual_token": (1.11e-5, _H100 + "13.5 ms for 2,048 patches, 30.6 for 8,192, by four to a visual token"),
}

EAGER = "32 layers of about 14 launches of 27 us each, as torch's eager mode has them"
SUBJECTS = {
    "a100-qwen2.5-vl-7b": Subject(
        "qwen2.5-vl-7b", A100, QWEN_7B, QWEN_VIT, 0.55, 0.004, 1024, 32,
        given=VIDEO_ON_ENGINES, interference=WITH_VIDEO, interference_source=VIDEO_SOURCE,
        note="UnifiedServe Fig. 6's model and GPU; CUDA graphs",
    ),
    "h100-qwen2.5-vl-7b": Subject(
        "qwen2.5-vl-7b", H100, QWEN_7B, QWEN_VIT, 0.5, 0.006, 1024, 32,
        given=ON_H100, interference=WITH_VIDEO, interference_source=VIDEO_SOURCE,
        note="no paper: one H100 that has run our engine, with weights of that shape; CUDA graphs",
    ),
    "a100x4-qwen2.5-vl-32b": Subject(
        "qwen2.5-vl-32b", A100, QWEN_32B, QWEN_VIT, 0.5, 0.008, 1024, 32, gpus=4, encoder_efficiency=0.3,
        given=VIDEO_ON_ENGINES, interference=WITH_VIDEO, interference_source=VIDEO_SOURCE,
        note="UnifiedServe Table 1: four A100 with tensor parallelism as one device",
    ),
    "h800-llava-next-7b": Subject(
        "llava-next-7b", H800, VICUNA, CLIP_TILES, 0.5, 0.012, 2340,
        encoder_efficiency=0.4, interference=H100_BESIDE, interference_source=H100_SOURCE,
        note="HydraInfer §5.1: eager, 16 bits",
    ),
    "h800-llava-1.5-7b": Subject(
        "llava-1.5-7b", H800, VICUNA, CLIP, 0.5, 0.012, 576,
        encoder_efficiency=0.4, interference=H100_BESIDE, interference_source=H100_SOURCE,
        note="HydraInfer §5.1: eager, 16 bits",
    ),
    "a100-minicpm-v-2.6": Subject(
        "minicpm-v-2.6", A100, QWEN_7B, SIGLIP, 0.5, 0.02, 640,
        given={
            "visual_token": (
                0.5 / 640,
                "fitted: 71.9 % less TTFT with five encoders (EPD §5.2) and the TTFT targets of Table 1, 0.62 s for "
                "each further image, leave 0.5 s an image of 640 tokens, preprocessing among them",
            )
        },
        note="EPD §5: vLLM 0.6.1, eager, images of 4032 x 3024",
    ),
    "a100-internvl2-8b": Subject(
        "internvl2-8b", A100, INTERNLM_7B, INTERNVIT, 0.6, 0.02, 3328,
        given={
            "visual_token": (
                0.2 / 3328,
                "fitted: 32.8 % less TTFT with five encoders (EPD §5.2) leave 0.2 s an image of 3328 tokens",
            )
        },
        note="EPD §5: vLLM 0.6.1, eager, images of 4032 x 3024",
    ),
    "a100-internvl2-26b": Subject(
        "internvl2-26b", A100, INTERNLM_20B, INTERNVIT_6B, 0.6, 0.03, 3328,
        note="EPD §5: vLLM 0.6.1, eager, images of 4032 x 3024",
    ),
    "a100x4-llama-3.2-11b": Subject(
        "llama-3.2-11b", A100, LLAMA_8B, VIT_H, 0.4, 0.01, 4 * 1601, gpus=4, encoder_efficiency=0.25,
        keeps_visual=True,
        note="ModServe Table 1: tensor parallelism over four; the encoder gains a factor of two by it (assumed: §3.1 "
        "has its shortest time at four)",
    ),
    "a100x4-internvl2.5-26b": Subject(
        "internvl2.5-26b", A100, INTERNLM_20B, INTERNVIT_6B, 0.45, 0.015, 1280, gpus=4, encoder_efficiency=0.3125,
        note="ModServe §5: tensor parallelism over four; the encoder gains a factor of 2.5 by it (assumed: §3.1 has "
        "1.3 from four to eight)",
    ),
}  # fmt: skip


def profile_of(subject: Subject) -> HardwareProfile:
    """Return the profile that a subject's shape gives."""
    derived = _derived(subject)
    costs = {**derived, **subject.given}
    device = DeviceSize(
        kind="cuda",
        memory_gib=subject.gpu.memory_gib * subject.gpus,
        video_engines=subject.gpu.video_engines * subject.gpus,
    )
    language, encoder = subject.language, subject.encoder
    sizes = ModelSizes(
        weights_gib={"encoder": encoder.gib, "language": language.gib},
        kv_token_bytes=language.kv_token_bytes,
        image_tokens=subject.image_tokens,
        frame_tokens=subject.frame_tokens,
        patches_a_token=max(1, round(encoder.patches / encoder.tokens)),
        keeps_visual=subject.keeps_visual,
    )
    sources = {f"costs.{name}": source for name, (_, source) in costs.items()}
    sources |= {"device": f"data sheet; {subject.note}", "model_sizes": "the model's configuration"}
    if subject.interference:
        sources["interference"] = subject.interference_source
    return HardwareProfile(
        model=subject.model,
        hardware=_hardware(subject),
        date=DATE,
        device=device,
        model_sizes=sizes,
        costs=StageCosts(**{name: float(f"{value:.3g}") for name, (value, _) in costs.items()}),
        interference={stage: dict(row) for stage, row in subject.interference.items()},
        sources=sources,
    )


def _derived(subject: Subject) -> dict[str, tuple[float, str]]:
    """Return costs and their sources, by operations, bytes and launches."""
    gpu, language, encoder = subject.gpu, subject.language, subject.encoder
    speed, eyes = subject.efficiency, subject.encoder_efficiency or subject.efficiency
    flops, bandwidth = gpu.flops * subject.gpus, gpu.bandwidth * subject.gpus * BANDWIDTH
    read = 2 * language.weights / bandwidth
    step = max(read, subject.launch)
    page = KV_PAGE * language.kv_token_bytes
    pull = f"bytes over {gpu.link / 1e9:.0f} GB/s between two GPUs"
    launches = f"launches, {subject.launch * 1e3:g} ms assumed" + (f": {EAGER}" if language is VICUNA else "")
    why = f"{2 * language.weights / 1e9:.3g} GB of weights at {BANDWIDTH:.0%} of the bandwidth, or {launches}"
    return {
        "decode_pass": (step, why),
        "sequence": (SAMPLING, "assumed: sampling and bookkeeping"),
        "context_token": (
            language.kv_token_bytes / bandwidth,
            f"{language.kv_token_bytes} bytes at {BANDWIDTH:.0%} of the bandwidth",
        ),
        "prefill_pass": (FOOT * subject.launch, _foot(subject.launch)),
        "prompt_token": (2 * language.weights / (flops * speed), _operations(2 * language.weights, gpu, speed)),
        "prompt_context": (
            4 * language.layers * language.width / (flops * speed * ATTENTION),
            _operations(4 * language.layers * language.width, gpu, speed * ATTENTION),
        ),
        "encode_batch": (FOOT * subject.launch / 2, _foot(subject.launch / 2)),
        "visual_token": (encoder.flops_a_token / (flops * eyes), _operations(encoder.flops_a_token, gpu, eyes)),
        "message": (5e-4, "assumed: a message between processes"),
        "pull": (1e-3, "assumed: a round trip before pages are read"),
        "pull_kv_page": (page / gpu.link, f"{page} {pull}; HydraInfer §5.5: 95 % within 8 ms"),
        "pull_visual_page": (
            VISUAL_PAGE * language.width * 2 / gpu.link,
            f"{VISUAL_PAGE * language.width * 2} {pull}; HydraInfer §5.5: 95 % within 2 ms",
        ),
        "lone_step": (step, "a decode pass"),
    }


def _operations(flops: float, gpu: Gpu, efficiency: float) -> str:
    return f"{flops / 1e9:.3g} GFLOP at {efficiency:.0%} of {gpu.flops / 1e12:.0f} TFLOP/s a GPU, assumed"


def _foot(launch: float) -> str:
    return f"{FOOT:g} of the launches' {launch * 1e3:g} ms (assumed), most of which operations hide"


def _hardware(subject: Subject) -> str:
    return subject.gpu.name if subject.gpus == 1 else f"{subject.gpus}x {subject.gpu.name}"


if __name__ == "__main__":
    for name, each in SUBJECTS.items():
        write_profile(FOLDER / f"{name}.toml", profile_of(each))
