"""Every option of the daemon, once: the CLI, the workers and the documentation all read it here."""

import os
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError
from unifiedserve.placement import Placement, Stage, read_placement

DeviceName = Literal["cpu", "cuda"]
Order = Literal["fcfs", "slack", "shortest"]
VideoDecoderName = Literal["flashcodec", "torchcodec", "pynvvideocodec"]
ImageBackground = Literal["white", "black", "none"]
DecodeOn = Literal["fastest", "cpu", "gpu"]
Share = Literal["auto", "mps", "none"]
AttentionBackend = Literal["auto", "triton", "flashinfer"]


#: Pillow's warning of an image that is smaller than what is allowed here: as a regular expression
LARGE_IMAGE_WARNING = "Image size .* exceeds limit"


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
    """Hold the daemon's options. Sizes are in MiB, times in seconds unless the description names another unit."""

    model: Annotated[
        str,
        Meta(
            description="The model to serve: a directory of a checkpoint, or its id on the Hugging Face hub. Empty: "
            "the bundled model, which knows drawn shapes only"
        ),
    ] = ""
    served_model_name: Annotated[
        str, Meta(description="The name by which requests ask for the model. Empty: the model argument as it is given")
    ] = ""
    chat_template: Annotated[
        str,
        Meta(description="A Jinja file to use instead of the checkpoint's own chat template. Empty: the checkpoint's"),
    ] = ""
    placement: Annotated[
        str,
        Meta(
            description="Which processes host the stages, and on which cores. shared: vision, encode + prefill and "
            "decode have a process each on all cores, so that videos do not stop streams; monolithic, split, ep-d, "
            "ed-p, e-p-d, one: other systems' ways, for comparisons; or parts, such as e+p+d or ep@0-3+d@4-5, or a "
            ".toml file. `unifiedserve placement X` draws it"
        ),
    ] = "shared"
    irp: Annotated[
        Literal["auto", "on", "off"],
        Meta(
            description="Whether the units of one request (groups of a video's frames, images, tiles) are spread over "
            "all workers that encode (EPD's intra-request parallelism), or one encodes all of them, as an ablation. "
            "auto: they are, where several encode"
        ),
    ] = "auto"
    compare: Annotated[
        bool,
        Meta(
            description="Serve the model a second time, with --placement monolithic, under the path /monolithic, so "
            "that the playground can compare both. Needs twice the memory"
        ),
    ] = False
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Meta(description="The device that runs the model. auto: cuda if a usable GPU is found, else cpu"),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(
            description="The number type of weights and activations. auto: bfloat16 where the device multiplies it "
            "in hardware, else float32"
        ),
    ] = "auto"
    load_format: Annotated[
        Literal["auto", "dummy"],
        Meta(
            description="Where the weights come from. auto: the checkpoint; dummy: random weights of the same "
            "shapes, to measure speed without the files (the answers are nonsense)"
        ),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int4"],
        Meta(
            description="Quantise the language model's matrices while loading: int8 takes about half and int4 about "
            "a quarter of their memory in bfloat16; tokens come sooner, and answers change a little. "
            "Checkpoints that are quantised already are loaded as they are"
        ),
    ] = "none"
    attention_backend: Annotated[
        AttentionBackend,
        Meta(
            description="The attention kernels on a GPU. auto: triton, which needs no further package and gives the "
            "same tokens in any batch; flashinfer: needs the package flashinfer-python"
        ),
    ] = "auto"
    share: Annotated[
        Share,
        Meta(
            description="How the workers share a GPU. mps: at the same time, as clients of an MPS daemon that the "
            "engine starts; none: in turns; auto: mps where it works, else none"
        ),
    ] = "auto"
    gpu_threads: Annotated[
        tuple[str, ...],
        Meta(
            description="With MPS, limit a worker to this percentage of the GPU's threads, as in encode-prefill=50. "
            "May be repeated. Most make an H100's products wrong, and a worker that finds that does not start: 10, 25, "
            "50 and 90 were right. Default: no limit"
        ),
    ] = ()
    gpu_memory_limits: Annotated[
        tuple[str, ...],
        Meta(
            description="With MPS, limit the GPU memory in MiB that a worker may take beside the shared buffers, as "
            "in encode-prefill=8192, so that only this worker fails if it takes more. May be repeated. "
            "Default: no limit"
        ),
    ] = ()
    tool_call_parser: Annotated[
        Literal["auto", "hermes", "llama3_json", "mistral"],
        Meta(
            description="The format in which the model writes tool calls. auto: found out from the chat template; "
            "name it if tool calls appear as text in answers"
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        Literal["auto", "think", "none"],
        Meta(
            description="Whether text in <think> tags goes into the field `reasoning_content` of the answer. think: "
            "always; none: never; auto: if the chat template mentions such tags"
        ),
    ] = "auto"
    max_model_len: Annotated[
        int,
        Meta(
            ge=0,
            description="The longest prompt and answer together, in tokens. 0: the model's own context length. "
            "Lower it to refuse longer requests",
        ),
    ] = 0

    kv_cache_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="The size of the KV cache in MiB, which bounds how many tokens running answers may hold. 0: "
            f"{DEFAULT_KV_CACHE_MIB} on a CPU, on a GPU all that --gpu-memory-utilization leaves. "
            "Raise it for long contexts or many requests at once",
        ),
    ] = 0
    kv_cache_dtype: Annotated[
        Literal["auto", "int8"],
        Meta(
            description="The number type of keys and values in the KV cache. auto: that of --dtype; int8 (CPU "
            "only): half of bfloat16's memory, and answers change a little. Choose int8 for long "
            "contexts"
        ),
    ] = "auto"
    gpu_memory_utilization: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="The share of the GPU's memory that may be in use, other programs included. Lower it if "
            "other programs start later and need the GPU",
        ),
    ] = 0.9
    patch_buffer_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="The size of the buffer in MiB that passes image patches from vision to encode. Raise it if "
            "many large videos wait for it (unifiedserve top shows its peak)",
        ),
    ] = 256
    visual_buffer_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="The size of the buffer in MiB that passes visual tokens from encode to prefill. Raise it "
            "if many long videos wait for it (unifiedserve top shows its peak)",
        ),
    ] = 128
    kv_page_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Tokens in a page of the KV cache. Smaller pages waste less on short prompts, larger ones "
            "cost less bookkeeping",
        ),
    ] = 16
    no_prefix_cache: Annotated[
        bool,
        Meta(
            description="Compute every prompt from its start, even if an earlier prompt began with the same tokens. "
            "For measurements"
        ),
    ] = False
    visual_cache_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Additional visual buffer in MiB that keeps the visual tokens of images and videos which "
            "may be asked about again. 0: keep none",
        ),
    ] = 128
    patch_page_rows: Annotated[
        int, Meta(ge=1, description="Patches in a page of the patch buffer; there is rarely a reason to change it")
    ] = 64
    visual_page_tokens: Annotated[
        int,
        Meta(ge=1, description="Visual tokens in a page of the visual buffer; there is rarely a reason to change it"),
    ] = 16
    kv_growth_reserve: Annotated[
        float,
        Meta(
            ge=0,
            le=0.5,
            description="The share of the KV cache that prefill leaves free, so that running answers can grow. "
            "Raise it if requests are preempted often",
        ),
    ] = 0.05

    order: Annotated[
        Order,
        Meta(
            description="The order in which requests are served in every stage, within the same priority. slack: "
            "the request first that would otherwise miss its target for the first token; shortest: the "
            "least remaining work first, but nobody waits for ever; fcfs: first come, first served"
        ),
    ] = "slack"
    slo_ttft: Annotated[
        float,
        Meta(
            ge=0,
            description="The target for the time to first token, in milliseconds; a request may set its own with "
            "`slo_ttft`. 0: five times what the request would take alone, as measured",
        ),
    ] = 0.0
    slo_ttft_visual: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds that each visual token adds to the target for the first token, so that a long "
            "video is not held to the target of a text",
        ),
    ] = 5.0
    slo_tbt: Annotated[
        float,
        Meta(
            ge=0,
            description="The target for the time between tokens of a stream while videos are processed, in "
            "milliseconds. Higher values finish videos sooner, lower ones keep streams faster. 0: 2.45 "
            "times the duration of a step alone, measured at the start",
        ),
    ] = 0.0
    no_overlap: Annotated[
        bool,
        Meta(
            description="Encode a request only after all its media are decoded, and prefill it only after all are "
            "encoded. For comparisons"
        ),
    ] = False
    no_pacing: Annotated[
        bool,
        Meta(
            description="Do not slow streams down while videos are processed: there is no target between tokens. "
            "For comparisons"
        ),
    ] = False
    naive: Annotated[
        bool,
        Meta(
            description="Work as the baseline of papers does, for comparisons: whole prompts, encoding within the "
            "step, one queue, no overlap and no pacing. Needs --placement monolithic"
        ),
    ] = False
    record: Annotated[
        str,
        Meta(
            description="A folder for what the schedulers of encode, prefill and decode are told and what they decide, "
            "which unifiedserve replay decides again. Empty: nothing is recorded"
        ),
    ] = ""
    prefill_chunk_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="Prompt tokens that one step of prefill computes. Smaller steps let short requests in "
            "sooner, larger ones finish long prompts sooner. 0: whole prompts",
        ),
    ] = 512
    encode_budget_tokens: Annotated[
        int,
        Meta(
            ge=1,
            description="Visual tokens that one step of the encoder computes; at least one image or pair of frames. "
            "Smaller steps let other work in sooner",
        ),
    ] = 512
    max_running: Annotated[
        int,
        Meta(
            ge=1,
            description="The most answers that are generated at the same time; further requests wait. Raise it for "
            "throughput if there is memory for their contexts",
        ),
    ] = 64
    speculative_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=31,
            description="Tokens that a decode step on a CPU guesses and checks at once, for all answers together, "
            "where a text repeats itself. Answers stay the same and come sooner. 0: no guesses; a GPU "
            "never guesses",
        ),
    ] = 7
    max_requests: Annotated[
        int,
        Meta(ge=1, description="The most requests in the engine, waiting ones included; further requests get a 429"),
    ] = 512
    max_queue_time: Annotated[
        float,
        Meta(
            ge=0,
            description="The longest estimated wait in seconds; a request that would wait longer gets a 429 at "
            "once. 0: no limit",
        ),
    ] = 600.0
    video_decoder: Annotated[
        VideoDecoderName,
        Meta(
            description="The library that decodes videos. torchcodec, or pynvvideocodec on a GPU, must be "
            "installed; choose one to compare, or if flashcodec fails on a file"
        ),
    ] = "flashcodec"
    decode_on: Annotated[
        DecodeOn,
        Meta(
            description="The hardware that decodes videos. cpu: the cores; gpu: the GPU's NVDEC units; "
            "fastest: for each video whichever is estimated to finish sooner"
        ),
    ] = "fastest"
    sandbox: Annotated[
        Literal["auto", "require", "off"],
        Meta(
            description="Whether the processes that decode media and check grammars are denied the network, other "
            "programs and other files. auto: as far as the kernel supports it; require: refuse to start "
            "where it does not; off: no sandbox"
        ),
    ] = "auto"
    max_decode_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="The most seconds of one core that the frames of a video may take to decode, by an estimate "
            "that is the same for every --video-decoder and on a GPU; a video that takes longer is refused. An hour "
            "of 1920x1080 takes about 240. Lower it for strangers, raise it for films",
        ),
    ] = 600.0
    vision_threads: Annotated[int, Meta(ge=0, description="Threads that decode videos. 0: one for each core")] = 0
    torch_threads: Annotated[
        int, Meta(ge=0, description="Threads that a worker computes with. 0: one for each core")
    ] = 0
    trace: Annotated[
        str,
        Meta(
            description="A file for a timeline of all stages in Chrome's trace format, written at shutdown; "
            "ui.perfetto.dev shows it. Empty: none"
        ),
    ] = ""
    log_format: Annotated[
        Literal["text", "json"],
        Meta(description="The format of the log on stderr. text: for people; json: one object a line, for programs"),
    ] = "text"
    access_log: Annotated[
        bool,
        Meta(
            description="Log one line for each HTTP request: caller, path, status, seconds and bytes, but no "
            "contents and no keys"
        ),
    ] = False

    host: Annotated[
        str, Meta(description="The address to listen on. 0.0.0.0 lets other machines in: set API keys then")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on. 0: any free port")] = 8000
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="A host name that requests may address the server by, such as example.com or *.example.com. "
            "May be repeated. Default: only its own names if it listens on loopback, else any name"
        ),
    ] = ()
    api_key_file: Annotated[
        str,
        Meta(
            description="A file of API keys, each on a line as KEY or NAME KEY; SIGHUP makes the server read it "
            "again. The variable UNIFIEDSERVE_API_KEYS may hold more keys. Without any key, everybody "
            "who reaches the server may use it"
        ),
    ] = ""
    requests_per_minute: Annotated[
        int,
        Meta(
            ge=0,
            description="The most requests per minute of one key, or of one address if there are no keys. 0: no limit",
        ),
    ] = 0
    requests_at_once: Annotated[
        int,
        Meta(
            ge=0,
            description="The most simultaneous requests of one key, or of one address if there are no keys. 0: no "
            "limit",
        ),
    ] = 0
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="An origin whose web pages may call the API from a browser, such as https://example.com. "
            "May be repeated. Default: none"
        ),
    ] = ()
    ssl_certfile: Annotated[
        str, Meta(description="A PEM file of certificates, to serve HTTPS; needs --ssl-keyfile. Empty: HTTP")
    ] = ""
    ssl_keyfile: Annotated[
        str, Meta(description="A PEM file of the certificate's private key; needs --ssl-certfile")
    ] = ""
    drain_timeout: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds that running requests have to finish after SIGTERM or Ctrl-C; new requests are "
            "refused meanwhile",
        ),
    ] = 10.0
    allowed_local_media_path: Annotated[
        str,
        Meta(description="The directory below which file:// URLs in requests may read. Empty: such URLs are refused"),
    ] = ""
    allow_private_media: Annotated[
        bool,
        Meta(
            description="Allow media URLs that lead to private or loopback addresses. Only for trusted clients: "
            "they could read internal services"
        ),
    ] = False
    allowed_media_domains: Annotated[
        tuple[str, ...], Meta(description="A host that media URLs may name. May be repeated. Default: any public host")
    ] = ()
    max_media_mib: Annotated[
        int, Meta(ge=1, description="The largest image or video that may be uploaded or fetched, in MiB")
    ] = 512
    max_body_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="The largest request body in MiB, images and videos in base64 included. Upload larger media "
            "with /v1/files",
        ),
    ] = 64
    body_timeout: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds in which the body of a request or an upload must arrive; one that makes no "
            "progress is ended sooner",
        ),
    ] = 300.0
    response_store_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory in MiB for stored responses (POST /v1/responses), which clients may get again or go on "
            "from; the least recently used make room. 0: none are stored",
        ),
    ] = 32
    response_store_seconds: Annotated[
        float, Meta(gt=0, description="Seconds that a response is stored after its last use")
    ] = 86400.0
    max_image_megapixels: Annotated[
        int, Meta(ge=1, description="The largest image before resizing, in millions of pixels")
    ] = 128
    image_background: Annotated[
        ImageBackground,
        Meta(
            description="The colour behind transparent pixels of images. none: the colours stored in these pixels, "
            "which no viewer shows"
        ),
    ] = "white"
    media_timeout: Annotated[float, Meta(gt=0, description="Seconds in which a media URL must be fetched")] = 30.0
    worker_timeout: Annotated[
        float,
        Meta(
            ge=0.2,
            description="Seconds without a sign of life after which a worker is replaced; a worker that is "
            "computing has forty times as long. Raise it on a machine that stalls",
        ),
    ] = 15.0
    startup_timeout: Annotated[
        float,
        Meta(gt=0, description="Seconds in which all workers must be ready. Raise it for large models on slow disks"),
    ] = 300.0

    @property
    def max_image_pixels(self) -> int:
        """The pixels of the largest image."""
        return self.max_image_megapixels * 1_000_000

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.naive and self.placement != "monolithic":
            raise ConfigError("--naive needs --placement monolithic: give both")
        if self.compare and self.placement == "monolithic":
            raise ConfigError("--compare serves --placement monolithic beside another placement: leave one out")
        if self.no_pacing and self.slo_tbt:
            raise ConfigError("--no-pacing means that there is no --slo-tbt: leave one out")
        if self.decode_on != "fastest" and self.video_decoder != "flashcodec":
            raise ConfigError(
                f"--decode-on works with --video-decoder flashcodec only, not with {self.video_decoder}: leave one out"
            )

        for option, given in ("--gpu-threads", self.gpu_threads), ("--gpu-memory-limits", self.gpu_memory_limits):
            if given and self.share == "none":
                raise ConfigError(f"{option} needs --share mps: workers that take turns have no limits")
        _ = self.threads_of, self.memory_limits_of, self.workers

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
                raise ConfigError(f"{option} {given}: there is no worker {name!r}; the workers are {', '.join(known)}")
            if not (number.isdecimal() and 1 <= int(number) <= most):
                raise ConfigError(f"{option} {given}: expected NAME=N, with {what} from 1 to {most} as N")
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
        return msgspec.structs.replace(self, placement="monolithic", irp="auto", compare=False, trace="", record="")

    @property
    def workers(self) -> Placement:
        """The processes that host the stages. Raises ConfigError for a placement that cannot be."""
        placement = _placement(self.placement, tuple(sorted(os.sched_getaffinity(0))))
        if self.irp != "auto" and len(placement.hosts(Stage.ENCODE)) == 1:
            raise ConfigError(
                f"--irp {self.irp}: --placement {self.placement} has one encoder; leave --irp out, or have several"
            )
        return msgspec.structs.replace(placement, irp=self.irp != "off")


@lru_cache
def _placement(text: str, cores: tuple[int, ...]) -> Placement:
    return read_placement(text, cores)
