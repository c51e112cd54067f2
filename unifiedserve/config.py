"""Every option of the daemon, once: the CLI, the workers and the documentation all read it here."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError

DeviceName = Literal["cpu", "cuda"]
Order = Literal["fcfs", "slack", "shortest"]
VideoDecoderName = Literal["flashcodec", "torchcodec", "pynvvideocodec"]
ImageBackground = Literal["white", "black", "none"]
DecodeOn = Literal["fastest", "cpu", "gpu"]
Share = Literal["auto", "mps", "none"]
AttentionBackend = Literal["auto", "triton", "flashinfer"]


#: Pillow's warning of an image that is smaller than what is allowed here: as a regular expression
LARGE_IMAGE_WARNING = "Image size .* exceeds limit"


class Stage(StrEnum):
    """The four stages of a request, in order."""

    VISION = "vision"
    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"

    @property
    def following(self) -> "Stage | None":
        """Return the stage that comes next in a request, or None after the last one."""
        stages = list(Stage)
        return next(iter(stages[stages.index(self) + 1 :]), None)


class Instance(msgspec.Struct, frozen=True):
    """A worker process: the stages it hosts and its share of the machine.

    `nice` lowers the process's CPU priority (0 keeps it), so that decoding, which streams to a reader, takes the cores
    at once from work that nobody sees yet. A paced decode leaves them again; the levels only order who goes first, and
    are low enough to leave the machine's other programs their share. On a GPU under MPS, the work of clients of
    priority 1 comes behind that of 0.
    """

    name: str
    stages: tuple[Stage, ...]
    nice: int = 0
    client_priority: int = 0


class Placement(msgspec.Struct, frozen=True):
    """A table of instances and the stages that they host. Placements are data: every one runs the same worker."""

    name: str
    instances: tuple[Instance, ...]

    def host(self, stage: Stage) -> str:
        """Return the name of the instance that hosts `stage`."""
        return next(instance.name for instance in self.instances if stage in instance.stages)


_VISION = Instance("vision", (Stage.VISION,), nice=15, client_priority=1)  # works ahead of the others

PLACEMENTS = {
    "shared": Placement(
        "shared",
        (
            _VISION,
            Instance("encode-prefill", (Stage.ENCODE, Stage.PREFILL), nice=7, client_priority=1),
            Instance("decode", (Stage.DECODE,)),
        ),
    ),
    "monolithic": Placement(
        "monolithic",
        (_VISION, Instance("language", (Stage.ENCODE, Stage.PREFILL, Stage.DECODE))),
    ),
}

MIB = 1 << 20
#: environment variables: the server's API keys, and the one that a client of ours shows
API_KEYS, API_KEY = "UNIFIEDSERVE_API_KEYS", "UNIFIEDSERVE_API_KEY"
DEFAULT_KV_CACHE_MIB = 512  # in host memory
_MOST_GPU_MIB = 1 << 24
_SHORT_TARGET = 1.0  # seconds to a short request's first token, where the user gives no target
_PACE = 2.45  # lone decode steps between tokens while videos are worked on: streams keep about a third of their speed
_REST = 0.8  # share of a step that decode leaves all cores to others after it; in the step it uses half of them
_LEAST_REST = 0.1  # the same if the user gives a target, which goes first
_STRETCH = 1.8  # factor of the beat while more wait than stream: few streams see no gap of five steps
_JOINING = 3.0  # the same while short prompts are about to join, which is soon over; more than that gains little


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's options. Sizes are in MiB, times in seconds where the description names no other unit."""

    model: Annotated[str, Meta(description="Checkpoint directory or hub id; empty: the bundled model")] = ""
    served_model_name: Annotated[str, Meta(description="Name in the API; empty: the model argument")] = ""
    chat_template: Annotated[str, Meta(description="Jinja file that replaces the checkpoint's template")] = ""
    placement: Annotated[
        Literal["shared", "monolithic"],
        Meta(description="shared: vision, encode+prefill and decode each in a process; monolithic: one loop"),
    ] = "shared"
    compare: Annotated[
        bool,
        Meta(description="Serve the model a second time, monolithic, below /monolithic: for the playground to compare"),
    ] = False
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Meta(description="What computes; auto: cuda where there is a GPU that can be used, else cpu"),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="Weights and activations; auto: bfloat16 where the device multiplies it, else float32"),
    ] = "auto"
    load_format: Annotated[
        Literal["auto", "dummy"],
        Meta(
            description="Weights; auto: the checkpoint's; dummy: random ones of its shapes, to measure speed without "
            "them: answers are nonsense"
        ),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int4"],
        Meta(
            description="Quantise the language model's matrices as they are loaded: a quarter to a half of the memory, "
            "and of the time between tokens. Checkpoints that are quantised are loaded as they are"
        ),
    ] = "none"
    attention_backend: Annotated[
        AttentionBackend,
        Meta(
            description="Attention on a GPU; auto: triton, which needs nothing and gives a token the same whatever the "
            "batch; flashinfer: its kernels, where flashinfer-python is installed"
        ),
    ] = "auto"
    share: Annotated[
        Share,
        Meta(
            description="How workers share a GPU; mps: at once, as clients of an MPS daemon of the engine's own; none: "
            "they take turns; auto: mps where it can be used"
        ),
    ] = "auto"
    gpu_threads: Annotated[
        tuple[str, ...],
        Meta(description="Under MPS, the percentage of a GPU's threads that a worker may use, as in encode-prefill=60"),
    ] = ()
    gpu_memory_limits: Annotated[
        tuple[str, ...],
        Meta(
            description="Under MPS, the MiB of a GPU's memory that a worker may take beside the shared buffers, as in "
            "encode-prefill=8192: one that takes more fails alone"
        ),
    ] = ()
    tool_call_parser: Annotated[
        Literal["auto", "hermes", "llama3_json", "mistral"],
        Meta(description="How the model writes tool calls; auto: as its chat template does"),
    ] = "auto"
    reasoning_parser: Annotated[
        Literal["auto", "think", "none"],
        Meta(description="Reasoning in <think> becomes a field of its own; auto: if the chat template knows it"),
    ] = "auto"
    max_model_len: Annotated[int, Meta(ge=0, description="Context length in tokens; 0: the model's")] = 0

    kv_cache_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Paged KV cache, shared by prefill and decode; 0: "
            f"{DEFAULT_KV_CACHE_MIB} on a CPU, on a GPU what --gpu-memory-utilization leaves for it",
        ),
    ] = 0
    kv_cache_dtype: Annotated[
        Literal["auto", "int8"],
        Meta(
            description="Keys and values in the KV cache; auto: as --dtype; int8, on a CPU only: codes of 8 bits, "
            "which take half of bfloat16's memory and change answers a little"
        ),
    ] = "auto"
    gpu_memory_utilization: Annotated[
        float,
        Meta(gt=0, le=1, description="Share of the GPU's memory that may be in use, by this engine and other programs"),
    ] = 0.9
    patch_buffer_mib: Annotated[int, Meta(ge=1, description="Image patches between vision and encode")] = 256
    visual_buffer_mib: Annotated[int, Meta(ge=1, description="Visual tokens between encode and prefill")] = 128
    kv_page_tokens: Annotated[int, Meta(ge=1, le=256, description="Tokens a KV page")] = 16
    no_prefix_cache: Annotated[
        bool, Meta(description="Prefill every prompt from its start, even where an earlier one began alike")
    ] = False
    visual_cache_mib: Annotated[
        int,
        Meta(ge=0, description="More visual buffer, to keep visual tokens of media that may come again; 0: keep none"),
    ] = 128
    patch_page_rows: Annotated[int, Meta(ge=1, description="Patches a page of the patch buffer")] = 64
    visual_page_tokens: Annotated[int, Meta(ge=1, description="Visual tokens a page")] = 16
    kv_growth_reserve: Annotated[
        float,
        Meta(ge=0, le=0.5, description="Share of the KV pages that prefill leaves to running decodes"),
    ] = 0.05

    order: Annotated[
        Order,
        Meta(
            description="Who goes first in every stage, below priority; slack: who must, to meet its target for the "
            "first token; shortest: who has the least work left, and who has waited; fcfs: who came first"
        ),
    ] = "slack"
    slo_ttft: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds to the first token, as a target; a request's own `slo_ttft` goes before it. "
            "0: five times what the request takes alone, as measured",
        ),
    ] = 0.0
    slo_ttft_visual: Annotated[
        float,
        Meta(ge=0, description="Milliseconds more for each visual token: a long video is not held to a text's target"),
    ] = 5.0
    slo_tbt: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds between the tokens of a stream while videos are worked on: more lets videos "
            "through faster; 0: 2.45 times what a step takes alone, measured at start",
        ),
    ] = 0.0
    no_overlap: Annotated[
        bool, Meta(description="Encode only when all media of a request are decoded, prefill when all are encoded")
    ] = False
    no_pacing: Annotated[
        bool, Meta(description="Let streams take all they can beside heavy work, with no target between tokens")
    ] = False
    naive: Annotated[
        bool,
        Meta(
            description="With monolithic: whole prompts, encoding inside the step, one queue, no overlap and no "
            "pacing; the baseline of papers, to compare with"
        ),
    ] = False
    prefill_chunk_tokens: Annotated[int, Meta(ge=0, description="Prompt tokens a step of prefill; 0: unlimited")] = 512
    encode_budget_tokens: Annotated[
        int, Meta(ge=1, description="Visual tokens a step of the encoder (at least one image or frame pair)")
    ] = 512
    max_running: Annotated[int, Meta(ge=1, description="Sequences that decode at once")] = 64
    speculative_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=31,
            description="On a CPU, tokens that a step of decode tries out for all sequences together where their texts "
            "repeat themselves; answers stay the same, but come sooner. 0: none; on a GPU there are none",
        ),
    ] = 7
    max_requests: Annotated[
        int, Meta(ge=1, description="Requests in the engine at once; more are refused with 429")
    ] = 512
    max_queue_time: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds that a request may have to wait behind others, as far as can be told; one that would "
            "wait longer is refused with 429. 0: any time",
        ),
    ] = 600.0
    video_decoder: Annotated[
        VideoDecoderName,
        Meta(
            description="torchcodec, or on a GPU pynvvideocodec, where they are installed: to compare with, and for a "
            "file that flashcodec fails on"
        ),
    ] = "flashcodec"
    decode_on: Annotated[
        DecodeOn, Meta(description="By cores, by a GPU's NVDEC units, or by whichever is estimated to be faster")
    ] = "fastest"
    sandbox: Annotated[
        Literal["auto", "require", "off"],
        Meta(
            description="What decodes media and tries grammars out has no network, programs, files of others; auto: "
            "as far as the kernel can see to it; require: or the start fails"
        ),
    ] = "auto"
    max_decode_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="Largest time of one core, or of one NVDEC unit, for the frames of a video, by an estimate "
            "before they are decoded: an hour of 1920x1080 takes about 240; lower it for strangers, raise it for films",
        ),
    ] = 600.0
    vision_threads: Annotated[int, Meta(ge=0, description="Video decoding threads; 0: one a core")] = 0
    torch_threads: Annotated[int, Meta(ge=0, description="Compute threads a model worker; 0: one a core")] = 0
    trace: Annotated[str, Meta(description="Write a Chrome/Perfetto trace here at shutdown")] = ""
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="The log on stderr; json: an object a line, for programs to read"),
    ] = "text"
    access_log: Annotated[
        bool, Meta(description="Log a line a request: who, what, status, seconds and bytes; no contents and no keys")
    ] = False

    host: Annotated[str, Meta(description="Address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0: any free one")] = 8000
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Names under which the server may be asked, *.example.com too; none: on loopback its own"),
    ] = ()
    api_key_file: Annotated[
        str,
        Meta(
            description="File with the API keys, a line each: KEY, or NAME KEY; SIGHUP reads it again. There may be "
            "keys in UNIFIEDSERVE_API_KEYS, too. None: whoever reaches the server may use it"
        ),
    ] = ""
    requests_per_minute: Annotated[
        int, Meta(ge=0, description="That a key, or an address where there are no keys, may send; 0: any number")
    ] = 0
    requests_at_once: Annotated[
        int, Meta(ge=0, description="Of a key, or an address where there are no keys; 0: any number")
    ] = 0
    cors_origins: Annotated[
        tuple[str, ...], Meta(description="Origins whose pages may use the API from browsers, as https://example.com")
    ] = ()
    ssl_certfile: Annotated[str, Meta(description="Certificates (PEM) for HTTPS; with --ssl-keyfile")] = ""
    ssl_keyfile: Annotated[str, Meta(description="Private key (PEM) of the certificate")] = ""
    drain_timeout: Annotated[
        float, Meta(ge=0, description="Seconds that running requests have after SIGTERM, while no others are taken")
    ] = 10.0
    allowed_local_media_path: Annotated[
        str, Meta(description="file:// URLs may read below this directory; empty: none")
    ] = ""
    allow_private_media: Annotated[bool, Meta(description="Let media URLs reach private and loopback addresses")] = (
        False
    )
    allowed_media_domains: Annotated[
        tuple[str, ...], Meta(description="If given, media URLs may name these hosts only")
    ] = ()
    max_media_mib: Annotated[int, Meta(ge=1, description="Largest image or video that is uploaded or fetched")] = 512
    max_body_mib: Annotated[
        int, Meta(ge=1, description="Largest JSON body, with the images and videos that it holds in base64")
    ] = 64
    body_timeout: Annotated[
        float, Meta(gt=0, description="Seconds for a request's body, or an upload, to come; stalled ones end sooner")
    ] = 300.0
    response_store_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory for stored responses (POST /v1/responses), which clients may get again or go on from; "
            "the least recently used make room. 0: none are stored",
        ),
    ] = 32
    response_store_seconds: Annotated[
        float, Meta(gt=0, description="Seconds for which a response is stored after its last use")
    ] = 86400.0
    max_image_megapixels: Annotated[int, Meta(ge=1, description="Largest image, before resizing")] = 128
    image_background: Annotated[
        ImageBackground,
        Meta(
            description="What is seen through the transparent pixels of images; none: the colours that are stored "
            "there, which no viewer shows"
        ),
    ] = "white"
    media_timeout: Annotated[float, Meta(gt=0, description="Seconds to fetch one media URL")] = 30.0
    worker_timeout: Annotated[
        float,
        Meta(
            ge=0.2,
            description="Seconds without a sign of life after which a worker is replaced: no turn of its loop, no "
            "processor time; one that computes has forty times as long for a turn",
        ),
    ] = 15.0
    startup_timeout: Annotated[float, Meta(gt=0, description="Seconds for all workers to come up")] = 300.0

    @property
    def max_image_pixels(self) -> int:
        """The pixels of the largest image."""
        return self.max_image_megapixels * 1_000_000

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.naive and self.placement != "monolithic":
            raise ConfigError("--naive is a way to run --placement monolithic: give both")
        if self.decode_on != "fastest" and self.video_decoder != "flashcodec":
            raise ConfigError(f"--decode-on is for --video-decoder flashcodec, not for {self.video_decoder}")

        for option, given in ("--gpu-threads", self.gpu_threads), ("--gpu-memory-limits", self.gpu_memory_limits):
            if given and self.share == "none":
                raise ConfigError(f"{option} is for --share mps: turns are not limited")
        _ = self.threads_of, self.memory_limits_of

    def kv_dtype(self, dtype: str) -> str:
        """Return the dtype of the KV cache beside activations of another."""
        return dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype

    @property
    def threads_of(self) -> dict[str, int]:
        """The percentages of a GPU's threads, by instance. Raises ConfigError for what is none."""
        return self._by_instance("--gpu-threads", self.gpu_threads, "a percentage", 100)

    @property
    def memory_limits_of(self) -> dict[str, int]:
        """The MiB of a GPU's memory, by instance. Raises ConfigError for what is none."""
        return self._by_instance("--gpu-memory-limits", self.gpu_memory_limits, "a number of MiB", _MOST_GPU_MIB)

    def _by_instance(self, option: str, values: tuple[str, ...], what: str, most: int) -> dict[str, int]:
        known = [instance.name for instance in self.workers.instances]
        found: dict[str, int] = {}
        for given in values:
            name, _, number = given.partition("=")
            if name not in known:
                raise ConfigError(f"{option} {given}: there is no worker {name!r}, but {', '.join(known)}")
            if not (number.isdecimal() and 1 <= int(number) <= most):
                raise ConfigError(f"{option} {given}: {what} from 1 to {most} leaves {name} something")
            found[name] = int(number)
        return found

    @property
    def service_order(self) -> Order:
        """Who goes first."""
        return "fcfs" if self.naive else self.order

    @property
    def short_tokens(self) -> int:
        """The most tokens of a request for which a share of each step is kept: two steps' worth."""
        return 2 * self.prefill_chunk_tokens

    @property
    def step_seconds(self) -> float:
        """The longest that a step may take which prefills, for short requests may come meanwhile: half their target."""
        return (self.slo_ttft / 1000 or _SHORT_TARGET) / 2

    def seconds_between_tokens(self, decode_step: float) -> float:
        """Return the target for streams beside heavy work, given the seconds of a lone decode step."""
        return self.slo_tbt / 1000 or _PACE * decode_step

    @property
    def pace(self) -> float:
        """The times of a step's own time that the target is at least; 0 if the user gave the target."""
        return 0.0 if self.slo_tbt else _PACE

    @property
    def rest_between_steps(self) -> float:
        """The least rest for others after a decode step, as a share of the step."""
        return _LEAST_REST if self.slo_tbt else _REST

    @property
    def stretch(self) -> float:
        """The most targets between tokens while more requests wait than stream; 1 if the user gave the target."""
        return 1.0 if self.slo_tbt else _STRETCH

    @property
    def stretch_joining(self) -> float:
        """The same while some are about to join the streams."""
        return 1.0 if self.slo_tbt else _JOINING

    @property
    def compared(self) -> "EngineConfig | None":
        """The options of the second engine, if there is to be one to compare with."""
        if not self.compare:
            return None
        return msgspec.structs.replace(self, placement="monolithic", compare=False, trace="")

    @property
    def workers(self) -> Placement:
        return PLACEMENTS[self.placement]
