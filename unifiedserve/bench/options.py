"""Define every option of `unifiedserve bench`, once."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from unifiedserve.bench.client.body import Wishes
from unifiedserve.errors import ConfigError

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
FirstTokenTarget = Annotated[
    Positive | None, Meta(description="The target for the time to first token, in seconds. Default: no target")
]
VideoSecondTarget = Annotated[
    float, Meta(ge=0, description="Seconds that each second of video adds to the target for the first token")
]
PromptTokenTarget = Annotated[
    float, Meta(ge=0, description="Seconds that each token of the prompt adds to the target for the first token")
]
BetweenTokensTarget = Annotated[
    Positive | None, Meta(description="The target for the time between tokens, in seconds. Default: no target")
]


class SloOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Set the targets of requests, and the place of the report."""

    slo_ttft: FirstTokenTarget = None
    slo_ttft_per_video_second: VideoSecondTarget = 0.0
    slo_ttft_per_prompt_token: PromptTokenTarget = 0.0
    slo_tbt: BetweenTokensTarget = None
    isolated: Annotated[
        str,
        Meta(
            description="The file of an earlier run with --arrivals closed:1, which tells how long requests take "
            "alone. --slo-factor and the figures of stalls need it"
        ),
    ] = ""
    slo_factor: Annotated[
        Positive | None,
        Meta(description="Set the targets to this multiple of what each kind of request takes alone; needs --isolated"),
    ] = None
    out: Annotated[
        str, Meta(description="The folder to write the report and the records to. Empty: print to the terminal only")
    ] = ""


class RunOptions(SloOptions, frozen=True, kw_only=True):
    """Set the options of a run: the server, the requests, their times and their media."""

    url: Annotated[str, Meta(description="The URL of the server to measure")] = "http://127.0.0.1:8000"
    model: Annotated[str, Meta(description="The model to ask for. Empty: the first in the server's list")] = ""
    dialect: Annotated[
        str,
        Meta(
            description="The kind of server, which decides about extensions of OpenAI's API: unifiedserve, vllm, "
            "sglang or openai. Empty: found out from its list of models"
        ),
    ] = ""
    name: Annotated[str, Meta(description="The name of the server in reports. Empty: the name of its dialect")] = ""

    workload: Annotated[
        str,
        Meta(
            description="The requests to send: text, image, video, mixed, sessions, long-videos:h264 (or hevc, "
            "vp9: a hundred videos), a .toml file of your own distributions, or trace: requests shaped like those of "
            "the trace in --arrivals"
        ),
    ] = "mixed"
    tokenizer: Annotated[
        str,
        Meta(description="The model's tokenizer.json, to make texts of exact lengths. Empty: count a word as a token"),
    ] = ""
    dataset: Annotated[
        str,
        Meta(
            description="A data set whose questions are sent instead of a workload, such as mlvu or video-mme; "
            "needs --data-dir"
        ),
    ] = ""
    data_dir: Annotated[str, Meta(description="The folder that holds the data set")] = ""
    skip_missing: Annotated[
        bool, Meta(description="Leave out questions whose files are missing, instead of stopping")
    ] = False
    max_tokens: Annotated[int, Meta(ge=1, description="The longest answer to a question of a data set, in tokens")] = 16
    accuracy: Annotated[
        Literal["letter", "logprob"],
        Meta(
            description="The scoring of answers to questions of a data set. letter: by the letter that it names; "
            "logprob: by the likeliest letter as first token"
        ),
    ] = "letter"

    arrivals: Annotated[
        str,
        Meta(
            description="When requests are sent: closed:USERS, constant:RATE, poisson:RATE, gamma:RATE,cv=CV or "
            "trace:FILE?scale=2&first=100. Rates are requests per second"
        ),
    ] = "poisson:1"
    requests: Annotated[int, Meta(ge=1, description="The number of requests; a data set may have fewer")] = 100
    seconds: Annotated[
        Positive | None,
        Meta(description="Start no request later than this many seconds after the first. Default: no limit"),
    ] = None
    seed: Annotated[
        int,
        Meta(ge=0, description="The seed of everything random: the same seed sends the same bytes at the same times"),
    ] = 0
    warmup: Annotated[
        int, Meta(ge=0, description="Requests that are sent one after another before the run, and not counted")
    ] = 2

    media: Annotated[
        Literal["auto", "data", "file", "http"],
        Meta(
            description="The way of images and videos to the server. auto: inside the requests, but files above 8 MiB "
            "are uploaded before the run where the server keeps files; data: all inside the requests; "
            "file: by path, if the server may read it; http: served by this command"
        ),
    ] = "auto"
    media_dir: Annotated[
        str,
        Meta(
            description="The folder for the images and videos of workloads, which are rendered once and kept. "
            "Empty: a folder in ~/.cache"
        ),
    ] = ""
    frames: Annotated[
        Count | None, Meta(description="Frames to sample from each video. Default: as many as the server decides")
    ] = None
    fps: Annotated[
        Positive | None, Meta(description="Frames to sample per second of video. Default: as the server decides")
    ] = None
    max_pixels: Annotated[
        Count | None,
        Meta(
            description="The most pixels of an image or a frame; larger ones are scaled down. Default: as the "
            "server decides"
        ),
    ] = None
    frame_pixels: Annotated[
        Count | None,
        Meta(description="The most pixels of a frame, if it differs from --max-pixels. Default: --max-pixels"),
    ] = None
    cache_salt: Annotated[
        str,
        Meta(
            description="A text that keeps the server from reusing what it cached in other runs, if its dialect "
            "supports that. Empty: none"
        ),
    ] = ""
    extra_body: Annotated[
        str,
        Meta(description="A JSON object whose fields go into every request, such as '{\"priority\": 1}'. Empty: none"),
    ] = ""
    silence: Annotated[
        float, Meta(gt=0, description="Seconds without any data after which a request counts as failed")
    ] = 600.0
    dump_requests: Annotated[
        str, Meta(description="Write the requests to this file instead of sending them. Empty: send them")
    ] = ""

    @property
    def wishes(self) -> Wishes:
        """Return the wishes of every request. Raises ConfigError if --extra-body is no JSON object."""
        return Wishes(
            media={"frames": self.frames, "fps": self.fps, "max_pixels": self.max_pixels},
            video={"frame_pixels": self.frame_pixels},
            logprobs=self.accuracy == "logprob",
            salt=self.cache_salt,
            extra=_object(self.extra_body) if self.extra_body else {},
        )


class GoodputOptions(RunOptions, frozen=True, kw_only=True):
    """Set the options of the search for the goodput; RATE stands for the rate that is tried."""

    arrivals: Annotated[
        str,
        Meta(
            description="When requests are sent: poisson:RATE, constant:RATE or gamma:RATE,cv=CV. The word RATE "
            "stands for the rate that is searched for"
        ),
    ] = "poisson:RATE"
    first_rate: Annotated[float, Meta(gt=0, description="The rate to try first, in requests per second")] = 1.0
    goal: Annotated[float, Meta(gt=0, le=1, description="The share of requests that must meet their targets")] = 0.9
    precision: Annotated[
        float, Meta(gt=0, lt=1, description="Stop when the rate is known this precisely, as a share of it")
    ] = 0.05
    repeats: Annotated[
        int, Meta(ge=1, description="Runs at each rate, each with its own seed. Raise it on a noisy machine")
    ] = 1


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"--extra-body is no JSON object: {error}") from None
