"""Admission: from what a client sent to a request that the engine can surely serve, or a clear refusal.

Everything that can be wrong with a request is found here, before any stage sees it: media that cannot be
read, prompts that are too long, buffers that are too small for it even when all else is idle.
"""

import secrets
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
from flashcodec.image import image_size

import flashcodec
from unifiedserve.config import EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.grammar import GrammarError, tokenizer_json
from unifiedserve.grammar_check import GrammarChecker
from unifiedserve.memory.shared import MemoryLayout
from unifiedserve.messages import GenerateRequest, MediaInput
from unifiedserve.models.base import MediaPlan, Processor, Prompt, PromptError, VideoInfo
from unifiedserve.sampling import ParamError, SamplingParams


@dataclass(frozen=True)
class Admitted:
    """A request with its prompt, its media plans (in prompt order) and complete sampling parameters.

    `frame_seconds` are the times of the sampled frames of each of these media; none for an image.
    """

    request: GenerateRequest
    prompt: Prompt
    sampling: SamplingParams
    frame_seconds: list[list[float]]


class ImageSize(NamedTuple):
    width: int
    height: int


MediaInfo = ImageSize | VideoInfo


class Admission:
    """Checks and plans requests. Blocking (media are analysed): call it from a thread."""

    def __init__(self, config: EngineConfig, processor: Processor, layout: MemoryLayout) -> None:
        self._config = config
        self._processor = processor
        self._layout = layout
        self._grammars = GrammarChecker(
            lambda: tokenizer_json(processor.tokenizer), processor.vocab_size, processor.eos_token_ids
        )
        longest = processor.max_position_embeddings
        self.max_model_len = min(config.max_model_len or longest, longest)

    def admit(self, request: GenerateRequest) -> Admitted:
        """Raises RequestError saying what is wrong, with the numbers."""
        if (self._processor.pooling is not None) != request.embed:
            raise RequestError(
                "this model generates text and makes no embeddings"
                if request.embed
                else "this model makes embeddings (POST /v1/embeddings) and generates no text",
                param="model",
                code="unsupported",
            )
        try:
            request.sampling.check()
            self._check_bias(request.sampling)
            if request.sampling.grammar is not None:
                self._grammars.check(request.sampling.grammar)
            infos = [self._inspect(i, media) for i, media in enumerate(request.media)]
            plans = [
                self._plan(i, media, info) for i, (media, info) in enumerate(zip(request.media, infos, strict=True))
            ]
            prompt = self._prompt(request, plans)
            if not self._leaves_room(prompt, request):
                raise self._too_long(request, infos, plans, len(prompt.token_ids))
        except GrammarError as error:
            raise RequestError(f"the grammar of the answer: {error}", param=request.grammar_param) from error
        except ParamError as error:
            raise RequestError(str(error), param=error.param) from error
        except PromptError as error:
            raise RequestError(str(error), param=error.param or "messages") from error
        sampling = self._complete(request.sampling, len(prompt.token_ids))
        self._check_buffers(prompt, sampling)
        return Admitted(request, prompt, sampling, [_seconds(plans[i], infos[i]) for i in prompt.order])

    def close(self) -> None:
        self._grammars.close()

    def _check_bias(self, sampling: SamplingParams) -> None:
        highest = max(sampling.logit_bias, default=0)
        if highest >= self._processor.vocab_size:
            vocabulary = self._processor.vocab_size
            raise ParamError("logit_bias", f"has token {highest}, which is not in the vocabulary of {vocabulary}")

    def _prompt(self, request: GenerateRequest, plans: Sequence[MediaPlan]) -> Prompt:
        if request.prompt_token_ids is not None:
            return self._processor.prompt_from_tokens(request.prompt_token_ids, plans)
        return self._processor.prompt(request.messages, plans, **request.template)

    def _inspect(self, number: int, media: MediaInput) -> MediaInfo:
        source = media.data if media.data is not None else Path(media.path or "")
        try:
            if media.kind == "video":
                return video_info(source)
            size = ImageSize(*image_size(source))
        except flashcodec.DecodeError as error:
            raise RequestError(f"{media_name(number, media)}: {error}", param="messages") from error
        if size.width * size.height > self._config.max_image_megapixels * 1_000_000:
            raise RequestError(
                f"{media_name(number, media)} is {size.width}x{size.height} pixels; "
                f"at most {self._config.max_image_megapixels} megapixels are allowed",
                param="messages",
            )
        return size

    def _plan(self, number: int, media: MediaInput, info: MediaInfo) -> MediaPlan:
        try:
            if isinstance(info, VideoInfo):
                return self._processor.plan_video(info, media.options)
            return self._processor.plan_image(*info, media.options)
        except PromptError as error:
            raise RequestError(f"{media_name(number, media)}: {error}", param=error.param or "messages") from error

    def _leaves_room(self, prompt: Prompt, request: GenerateRequest) -> bool:
        """Whether the context holds the prompt with one token of the answer, if there is to be any."""
        return len(prompt.token_ids) + (request.sampling.max_tokens != 0) <= self.max_model_len

    def _too_long(
        self, request: GenerateRequest, infos: Sequence[MediaInfo], plans: Sequence[MediaPlan], tokens: int
    ) -> RequestError:
        """What to say of a prompt of so many tokens, which leave no room for an answer."""
        remedy = "Shorten the text, or sample fewer frames or pixels"
        if any(plan.kind == "video" for plan in plans):
            frames = self._frames_that_fit(request, infos, plans)
            remedy += f": {frames} frames a video fit (num_frames)" if frames else "; not even one frame fits"
        answer = " with at least one for the answer" if request.sampling.max_tokens != 0 else ""
        return RequestError(
            f"the prompt has {tokens} tokens, media included; the context holds {self.max_model_len}{answer}. {remedy}",
            param="input_tokens",
            code="context_length_exceeded",
        )

    def _frames_that_fit(self, request: GenerateRequest, infos: Sequence[MediaInfo], plans: Sequence[MediaPlan]) -> int:
        """The most frames of each video with which a prompt that is too long would not be; 0 if there are none.

        Found by trying: fewer frames may be larger, and bring texts of their own.
        """

        def too_long(frames: int) -> bool:
            shorter = [
                self._processor.plan_video(info, msgspec.structs.replace(media.options, num_frames=frames, fps=None))
                if isinstance(info, VideoInfo)
                else plan
                for media, info, plan in zip(request.media, infos, plans, strict=True)
            ]
            return not self._leaves_room(self._prompt(request, shorter), request)

        most = max(len(plan.frame_indices) for plan in plans)
        return bisect_left(range(1, most), True, key=too_long)

    def _complete(self, sampling: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """Resolve `max_tokens` and `seed`, and check the length of the answer."""
        room = self.max_model_len - prompt_tokens
        if sampling.max_tokens is not None and sampling.max_tokens > room:
            raise RequestError(
                f"max_tokens is {sampling.max_tokens}, but after a prompt of {prompt_tokens} tokens "
                f"{room} of the context of {self.max_model_len} are left",
                param="max_tokens",
                code="context_length_exceeded",
            )
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed  # a recomputation draws alike
        cached = (self._layout.kv.pages // sampling.n - self._layout.state_pages) * self._config.kv_page_tokens
        longest = max(1, min(room, cached - prompt_tokens + 1))
        max_tokens = longest if sampling.max_tokens is None else sampling.max_tokens
        return msgspec.structs.replace(sampling, max_tokens=max_tokens, seed=seed)

    def _check_buffers(self, prompt: Prompt, sampling: SamplingParams) -> None:
        config, layout = self._config, self._layout
        tokens = len(prompt.token_ids) + max(sampling.max_tokens or 0, 1) - 1  # the last one's KV is not needed
        self._check_buffer(
            "KV cache",
            "--kv-cache-mib",
            (_pages(tokens, config.kv_page_tokens) + layout.state_pages) * sampling.n,
            layout.kv.pages,
            f"{tokens} tokens (prompt and max_tokens) times n={sampling.n}",
        )
        patches = sum(plan.units * _pages(plan.patches_per_unit, config.patch_page_rows) for plan in prompt.media)
        self._check_buffer(
            "patch buffer",
            "--patch-buffer-mib",
            patches,
            layout.patch.pages,
            f"{sum(plan.patches for plan in prompt.media)} patches",
        )
        units = [plan.unit_tokens(unit) for plan in prompt.media for unit in range(plan.units)]
        visual = sum(_pages(tokens, config.visual_page_tokens) for tokens in units)
        self._check_buffer(
            "visual buffer",
            "--visual-buffer-mib",
            visual,
            layout.visual.pages,
            f"{sum(plan.tokens for plan in prompt.media)} visual tokens",
        )

    @staticmethod
    def _check_buffer(buffer: str, option: str, needed: int, total: int, what: str) -> None:
        if needed > total:
            raise RequestError(
                f"the request needs {needed} pages of the {buffer} ({what}), which has {total}: "
                f"ask for less, or start the server with a larger {option}",
                param="max_tokens" if buffer == "KV cache" else "messages",
                code="buffer_too_small",
            )


def media_name(number: int, media: MediaInput) -> str:
    """How errors name a medium: its kind, and its place among the request's media from 1."""
    return f"{media.kind} {number + 1}"


def video_info(source: bytes | Path) -> VideoInfo:
    """What the processor must know of a video; raises flashcodec.DecodeError."""
    bitstream = flashcodec.analyse_bitstream(source)
    last = bitstream.num_frames - 1
    duration = float(bitstream.pts_seconds[last] + bitstream.durations_seconds[last] - bitstream.pts_seconds[0])
    return VideoInfo(
        num_frames=bitstream.num_frames,
        fps=bitstream.metadata.average_fps or bitstream.num_frames / max(duration, 1e-6),
        duration=duration,
        width=bitstream.width,
        height=bitstream.height,
        pts_seconds=bitstream.pts_seconds.tolist(),
    )


def _seconds(plan: MediaPlan, info: MediaInfo) -> list[float]:
    """When the frames of a plan are shown, from the video's beginning."""
    if not isinstance(info, VideoInfo):
        return []
    times = info.pts_seconds
    return [round(times[frame] - times[0], 3) for frame in plan.frame_indices]


def _pages(rows: int, page_rows: int) -> int:
    return -(-rows // page_rows)
