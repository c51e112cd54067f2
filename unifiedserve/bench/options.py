"""Every option of `unifiedserve bench`, once."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from unifiedserve.bench.client.body import Wishes
from unifiedserve.errors import ConfigError

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class SloOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is owed, and where the report goes."""

    slo_ttft: Annotated[Positive | None, Meta(description="Target: seconds to the first token")] = None
    slo_ttft_per_video_second: Annotated[float, Meta(ge=0, description="More of them for each second of video")] = 0.0
    slo_ttft_per_prompt_token: Annotated[float, Meta(ge=0, description="More of them for each token of the prompt")] = (
        0.0
    )
    slo_tbt: Annotated[Positive | None, Meta(description="Target: seconds between tokens")] = None
    isolated: Annotated[
        str, Meta(description="A run with --arrivals closed:1: what requests take alone, for --slo-factor and stalls")
    ] = ""
    slo_factor: Annotated[
        Positive | None, Meta(description="Targets as a factor of what each kind of request takes alone")
    ] = None
    out: Annotated[str, Meta(description="Folder for the report; empty: the terminal only")] = ""


class RunOptions(SloOptions, frozen=True, kw_only=True):
    """What is sent, when, to whom and how."""

    url: Annotated[str, Meta(description="The server")] = "http://127.0.0.1:8000"
    model: Annotated[str, Meta(description="Its model; empty: the first that it names")] = ""
    dialect: Annotated[
        str, Meta(description="What it understands: unifiedserve, vllm, sglang or openai; empty: found out")
    ] = ""
    name: Annotated[str, Meta(description="Its name in reports; empty: the dialect's")] = ""

    workload: Annotated[
        str,
        Meta(
            description="Requests by distributions: text, image, video, mixed, sessions or a .toml file of your own; "
            "trace: in the shapes of the trace that --arrivals names; long-videos: a hundred"
        ),
    ] = "mixed"
    tokenizer: Annotated[
        str, Meta(description="tokenizer.json of the model, for texts of exact lengths; empty: a word is a token")
    ] = ""
    dataset: Annotated[str, Meta(description="Questions of a data set instead, such as mlvu or video-mme")] = ""
    data_dir: Annotated[str, Meta(description="Where it lies")] = ""
    skip_missing: Annotated[bool, Meta(description="Go on without files of it that are missing")] = False
    max_tokens: Annotated[int, Meta(ge=1, description="Of an answer to a question of a data set")] = 16
    accuracy: Annotated[
        Literal["letter", "logprob"],
        Meta(
            description="A choice is right by the letter that the answer names, or by the first token's probabilities"
        ),
    ] = "letter"

    arrivals: Annotated[
        str,
        Meta(
            description="closed:USERS, constant:RATE, poisson:RATE, gamma:RATE,cv=CV or trace:FILE?scale=2&first=100; "
            "rates are requests a second"
        ),
    ] = "poisson:1"
    requests: Annotated[int, Meta(ge=1, description="How many; of a data set at most so many")] = 100
    seconds: Annotated[Positive | None, Meta(description="Begin no request later than this")] = None
    seed: Annotated[int, Meta(ge=0, description="The same seed sends the same bytes at the same times")] = 0
    warmup: Annotated[int, Meta(ge=0, description="Requests before, one after another, that do not count")] = 2

    media: Annotated[
        Literal["data", "file", "http"],
        Meta(description="Images and videos in the request, by path (which the server must allow) or served from here"),
    ] = "data"
    media_dir: Annotated[str, Meta(description="Where rendered media are kept; empty: in ~/.cache")] = ""
    frames: Annotated[Count | None, Meta(description="Of a video; default: as the server's rules say")] = None
    fps: Annotated[Positive | None, Meta(description="Frames of a second of video")] = None
    max_pixels: Annotated[Count | None, Meta(description="Of a frame or an image")] = None
    frame_pixels: Annotated[
        Count | None, Meta(description="Of a frame, instead of --max-pixels in requests about a video")
    ] = None
    cache_salt: Annotated[str, Meta(description="Keeps the server's caches of other runs out, where it knows one")] = ""
    extra_body: Annotated[str, Meta(description="JSON that goes into every request: '{\"priority\": 1}'")] = ""
    silence: Annotated[float, Meta(gt=0, description="Seconds without a word after which a request has failed")] = 600.0
    dump_requests: Annotated[str, Meta(description="Write the requests to this file, and send nothing")] = ""

    @property
    def wishes(self) -> Wishes:
        """What every request asks for. Raises ConfigError if --extra-body is no JSON object."""
        return Wishes(
            media={"frames": self.frames, "fps": self.fps, "max_pixels": self.max_pixels},
            video={"frame_pixels": self.frame_pixels},
            logprobs=self.accuracy == "logprob",
            salt=self.cache_salt,
            extra=_object(self.extra_body) if self.extra_body else {},
        )


class GoodputOptions(RunOptions, frozen=True, kw_only=True):
    """What the search for the goodput is about; RATE stands for the rate that is tried."""

    arrivals: Annotated[str, Meta(description="poisson:RATE, constant:RATE or gamma:RATE,cv=CV, word for word")] = (
        "poisson:RATE"
    )
    first_rate: Annotated[float, Meta(gt=0, description="Requests a second that are tried first")] = 1.0
    goal: Annotated[float, Meta(gt=0, le=1, description="Share of requests that have to hold their targets")] = 0.9
    precision: Annotated[float, Meta(gt=0, lt=1, description="The search ends when the rate is known this well")] = 0.05
    repeats: Annotated[int, Meta(ge=1, description="Runs at each rate, each with a seed of its own")] = 1


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"--extra-body is no JSON object: {error}") from None
