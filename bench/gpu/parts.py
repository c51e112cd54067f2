"""All items in their order, by part."""

from bench.gpu.item import Item

_AT = "bench.gpu.items."

BUILD = Item(
    "build",
    f"{_AT}build:build",
    "the C++ cores without FlashCodec",
    240,
    ("g++", "cmake"),
    ("ipc_buffers,unifiedserve", "-O1"),
)

BUILD_FLASHCODEC = Item(
    "build_flashcodec", f"{_AT}build:build", "FlashCodec's core", 180, ("g++", "cmake", "ffmpeg"), ("flashcodec", "-O3")
)

IMPORTS = Item("imports", f"{_AT}machine:imports", "torch, triton, transformers from a cold disk", 180)

SANDBOX = Item("sandbox", f"{_AT}sandbox:cuda_inside", "CUDA, NVDEC, nvJPEG in the sandbox", 60, ("driver", "cores"))

_MODELS = ("cores", "flashcodec", "server", "pytest", "references")
_SHAPE = "qwen2.5-vl-7b"
_SERVER = ("cores", "flashcodec", "server", "engine")

PROBE = (
    IMPORTS,
    Item("doctor", f"{_AT}machine:doctor", "the doctor's report, NVDEC's capabilities", 240),
    Item("toolchain", f"{_AT}machine:toolchain", "compilers, Python.h, a CUDA C++ program", 90),
    Item("contexts", f"{_AT}contexts:contexts", "a context's time and memory", 60, ("driver",)),
    Item("host_memory", f"{_AT}host_memory:rates", "copies from pageable, shared, pinned memory", 60, ("driver",)),
    Item("ipc_opening", f"{_AT}ipc:opening", "time to open memory of 2 MiB to 8 GiB", 60, ("driver",)),
    Item("ipc_blocks", f"{_AT}ipc:blocks", "what a handle of a small allocation opens", 30, ("driver",)),
    Item("ipc_after_the_end", f"{_AT}ipc:after_the_end", "opened memory, freed or its owner killed", 60, ("driver",)),
    Item("mps_contexts", f"{_AT}contexts:contexts_under_mps", "contexts and UUIDs under MPS", 60, ("driver", "mps")),
    Item("mps_memory", f"{_AT}mps:memory", "memory shared across MPS' border", 60, ("driver", "mps")),
    Item("mps_overlap", f"{_AT}mps:overlap", "two processes at once, with and without MPS", 60, ("driver", "mps")),
    BUILD,
    SANDBOX,
    Item("zygote", f"{_AT}sandbox:zygote", "what keeps workers from being forked", 60, ("cores", "server")),
    Item(
        "triton_compile", f"{_AT}compilation:kernels", "each variant's compile time", 120, ("triton", "cores", "server")
    ),
    Item("sharing", f"{_AT}sharing:without_mps", "decode beside prefill: streams, processes", 90, ("torch",)),
    Item("mps_sharing", f"{_AT}sharing:under_mps", "decode beside prefill under MPS", 120, ("torch", "mps")),
    Item(
        "mps_products",
        f"{_AT}sharing:limited_products",
        "products under limits on threads",
        120,
        ("torch", "mps", "cores", "server"),
    ),
    # last, as what comes after a fault may suffer from it
    Item("mps_kill", f"{_AT}mps:kill", "clients killed idle and busy", 90, ("driver", "mps")),
    Item("mps_fault", f"{_AT}mps:fault", "a client's fault, and the way back", 90, ("driver", "mps")),
)

# what tells most comes first: a deadline may cut off the rest
CORE = (
    BUILD,
    BUILD_FLASHCODEC,
    Item(
        "memory_tests",
        f"{_AT}suites:pytest",
        "tests of memory on a GPU",
        120,
        ("driver", "cores", "pytest"),
        ("-m", "gpu", "tests/ipc_buffers", "tests/doctor/test_gpu_probes.py"),
    ),
    Item("memory_rates", f"{_AT}memory_rates:views", "Memory in torch, pinned copies", 60, ("torch", "cores")),
    Item(
        "kernel_times",
        f"{_AT}kernel_times:measure",
        "kernels beside torch and the floor",
        120,
        ("torch", "triton", "cores", "server"),
    ),
    Item(
        "attention_variants",
        f"{_AT}attention_variants:measure",
        "paged attention by sizes of its programs",
        150,
        ("torch", "triton", "cores", "server"),
    ),
    Item("families", f"{_AT}families:tokens", "float32 tokens of every family", 180, (*_MODELS, "engine"), ("cuda",)),
    Item("bf16_logits", f"{_AT}families:bf16_logits", "bfloat16 logits", 120, (*_MODELS, "engine"), ("cuda",)),
    Item(
        "stage_times", f"{_AT}engine:stage_times", "each stage's time for a clip", 60, _SERVER, ("cuda",), serves=True
    ),
    Item(
        "kill_workers",
        f"{_AT}engine:kill_workers",
        "each worker killed under load",
        150,
        _SERVER,
        ("cuda",),
        serves=True,
    ),
    Item("dummy_7b", f"{_AT}engine:dummy", "a 7B shape, 64 frames", 180, _SERVER, ("cuda", _SHAPE), serves=True),
    Item(
        "decode_floor",
        f"{_AT}model_steps:measure",
        "a 7B shape's steps, decode's beside its floor",
        150,
        _SERVER,
        ("cuda", _SHAPE),
    ),
    Item(
        "batch_invariance",
        f"{_AT}batch_invariance:measure",
        "texts alone and in company, what --batch-invariant costs",
        240,
        _SERVER,
        ("cuda", _SHAPE),
    ),
    Item(
        "kernel_tests",
        f"{_AT}suites:pytest",
        "tests/device on the GPU",
        240,
        ("torch", "triton", "cores", "server", "pytest"),
        ("-m", "gpu", "tests/device", "--numprocesses", "8", "--dist", "load"),
    ),
    Item("families_on_cpu", f"{_AT}families:tokens", "the references on this processor", 150, _MODELS, ("cpu",)),
    Item(
        "memcheck",
        f"{_AT}sanitizer:check",
        "kernels under compute-sanitizer's memcheck",
        120,
        ("torch", "triton", "cores", "server", "compute-sanitizer"),
        ("memcheck",),
    ),
    Item(
        "racecheck",
        f"{_AT}sanitizer:check",
        "kernels under compute-sanitizer's racecheck",
        150,
        ("torch", "triton", "cores", "server", "compute-sanitizer"),
        ("racecheck",),
    ),
)

_DECODING = ("driver", "torch", "flashcodec")
_VIDEOS = (*_DECODING, "videos")
_CLIP = "telescope.mp4"
_CLIPS = (_CLIP, "shapes-motion.mp4")
_LARGE = "large.mp4"

NVDEC = (
    BUILD_FLASHCODEC,
    Item("gpu_pictures", f"{_AT}nvdec:pictures", "pictures by the GPU's threads beside the cores'", 60, _DECODING),
    Item("nvdec_frames", f"{_AT}nvdec:frames", "frames of NVDEC beside the cores'", 60, _DECODING, (_LARGE,)),
    Item("nvdec_videos", f"{_AT}nvdec_videos:compare", "frames of sound and faulty videos", 90, _VIDEOS),
    Item("nvdec_parser", f"{_AT}nvdec_parser:references", "what it says of lost pictures", 30, _VIDEOS),
    Item("nvdec_rates", f"{_AT}nvdec:rates", "frames a second, 1 to 32 requests at once", 90, _DECODING, (_LARGE,)),
    Item("nvdec_engines", f"{_AT}nvdec:engines", "one video and many on 1 to all engines", 90, _DECODING, (_LARGE,)),
    Item("nvdec_costs", f"{_AT}nvdec:costs", "making a decoder, having one, another size", 60, _DECODING, _CLIPS),
    Item("nvjpeg", f"{_AT}nvdec:images", "a JPEG by the GPU's hardware and by a core", 60, _DECODING),
    Item(
        "nvdec_beside",
        f"{_AT}nvdec:beside",
        "TorchCodec and PyNvVideoCodec on a clip",
        120,
        (*_DECODING, "peers"),
        (_LARGE,),
    ),
    Item(
        "nvdec_mps", f"{_AT}nvdec:rates_under_mps", "the rates as a client of MPS", 90, (*_DECODING, "mps"), (_LARGE,)
    ),
    Item(
        "nvdec_tests",
        f"{_AT}suites:pytest",
        "tests of outputs on a GPU",
        120,
        ("driver", "flashcodec", "pytest"),
        ("tests/flashcodec/test_gpu_outputs.py", "tests/flashcodec/test_gpu_decoder.py"),
    ),
)

SERVE = (
    BUILD,
    BUILD_FLASHCODEC,
    Item(
        "serve_beside",
        f"{_AT}serving:beside",
        "streams beside videos: MPS, in turn, one loop; NVDEC, cores",
        420,
        _SERVER,
        ("cuda", _SHAPE),
        serves=True,
    ),
    Item(
        "interference",
        f"{_AT}interference:under_mps",
        "each stage beside each other one, by their sizes",
        150,
        (*_SERVER, "mps"),
        ("cuda", _SHAPE),
    ),
    Item(
        "memories",
        f"{_AT}memories:answers",
        "pages that travel, on one GPU and between two",
        150,
        _SERVER,
        ("cuda",),
        serves=True,
    ),
    Item(
        "ranks",
        f"{_AT}ranks:answers",
        "one model over two GPUs; skipped where there is one",
        200,
        _SERVER,
        ("cuda",),
        serves=True,
    ),
    Item("kills", f"{_AT}engine:kill_often", "20 SIGKILLs under load", 240, _SERVER, ("cuda",), serves=True),
    Item(
        "faults",
        f"{_AT}engine:fault_often",
        "3 illegal accesses under load",
        120,
        (*_SERVER, "mps"),
        ("cuda",),
        serves=True,
    ),
)

PARTS = {"probe": PROBE, "core": CORE, "nvdec": NVDEC, "serve": SERVE}
ITEMS = {item.name: item for items in PARTS.values() for item in items}


def of_part(part: str) -> list[Item]:
    """Return the items of a part, or of all: an item of several parts is in the first."""
    return list(ITEMS.values() if part == "all" else PARTS[part])
