"""Check whether the context holds a request, and say how it would fit."""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from unifiedserve.engine.admission.media import MediaInfo
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.processor import ExpandedPrompt, MediaPlan, Processor, VideoInfo
from unifiedserve.models.text import TooLongError


class Context:
    """Hold the `length` of a context in tokens."""

    def __init__(self, processor: Processor, length: int) -> None:
        self._processor = processor
        self.length = length

    def prompt(
        self, request: GenerateRequest, infos: Sequence[MediaInfo], plans: Sequence[MediaPlan]
    ) -> ExpandedPrompt:
        """Return the request's prompt. Raises PromptError, and RequestError if it leaves no room for the answer."""
        try:
            return self._expand(request, plans)
        except TooLongError as error:
            raise self._too_long(request, infos, plans, error) from None

    def room(self, sampling: SamplingParams, prompt_tokens: int) -> int:
        """Return the tokens left for an answer. Raises RequestError if `max_tokens` is more."""
        room = self.length - prompt_tokens
        if sampling.max_tokens is not None and sampling.max_tokens > room:
            raise RequestError(
                f"max_tokens is {sampling.max_tokens}, but after a prompt of {prompt_tokens} tokens "
                f"{room} of the context of {self.length} are left",
                param="max_tokens",
                code="context_length_exceeded",
            )
        return room

    def _expand(self, request: GenerateRequest, plans: Sequence[MediaPlan]) -> ExpandedPrompt:
        """Return the prompt; raises TooLongError unless the context holds it with one token of an answer, if any."""
        most = self.length - (request.sampling.max_tokens != 0)
        if request.prompt_token_ids is not None:
            return self._processor.prompt_from_tokens(request.prompt_token_ids, plans, most)
        return self._processor.prompt(request.messages, plans, most, **request.template)

    def _too_long(
        self, request: GenerateRequest, infos: Sequence[MediaInfo], plans: Sequence[MediaPlan], error: TooLongError
    ) -> RequestError:
        """Return the error of a prompt that leaves no room for an answer."""
        remedy = "Shorten the text, or sample fewer frames or pixels"
        if any(plan.kind == "video" for plan in plans):
            frames = self._frames_that_fit(request, infos, plans)
            remedy += f": {frames} frames a video fit (num_frames)" if frames else "; not even one frame fits"
        answer = " with at least one for the answer" if request.sampling.max_tokens != 0 else ""
        return RequestError(
            f"the prompt has {error.described} tokens, media included; the context holds {self.length}{answer}. "
            f"{remedy}",
            param=request.prompt_param,
            code="context_length_exceeded",
        )

    def _frames_that_fit(self, request: GenerateRequest, infos: Sequence[MediaInfo], plans: Sequence[MediaPlan]) -> int:
        """Return the most frames of each video with which a too long prompt fits. 0 if no number does.

        Found by trying: fewer frames may be larger, and bring texts of their own.
        """

        def too_long(frames: int) -> bool:
            shorter = [
                self._processor.plan_video(info, msgspec.structs.replace(media.options, num_frames=frames, fps=None))
                if isinstance(info, VideoInfo)
                else plan
                for media, info, plan in zip(request.media, infos, plans, strict=True)
            ]
            try:
                self._expand(request, shorter)
            except TooLongError:
                return True
            return False

        most = max(len(plan.frame_indices) for plan in plans)
        return bisect_left(range(1, most), True, key=too_long)
