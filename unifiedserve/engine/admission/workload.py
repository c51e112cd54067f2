"""Estimate the media work before a request's first token, and the frames in time."""

from collections.abc import Sequence

import msgspec
import numpy as np

import flashcodec
from unifiedserve.engine.admission.media import MediaInfo
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import DecodingWork, Source
from unifiedserve.models.processor import ExpandedPrompt, MediaPlan, Processor, VideoInfo
from unifiedserve.reading.jobs import VideoWork
from unifiedserve.reading.readers import Cancellation, Reading
from unifiedserve.scheduling import Outlook, Work, affordable_frames

_MOST_FRAMES = 1 << 14  # of which a message to a reading process has room


class Workload:
    """Estimate the work for media of one request. Blocking (videos are analysed): call it from a thread."""

    def __init__(
        self,
        processor: Processor,
        media: Sequence[MediaInput],
        infos: Sequence[MediaInfo],
        reading: Reading,
        cancellation: Cancellation | None = None,
    ) -> None:
        self._processor = processor
        self._media = media
        self._infos = infos
        self._reading, self._cancellation = reading, cancellation
        self._known: dict[tuple[Source, tuple[int, ...]], DecodingWork | flashcodec.DecodeError] = {}

    def decoding(self, medium: MediaInput, plan: MediaPlan) -> DecodingWork | None:
        """Return what decoding a plan's frames takes; None for what is no coded video, or cannot be told of."""
        if plan.kind == "image" or medium.frames or len(plan.frame_indices) > _MOST_FRAMES:
            return None
        found = self._look(medium.where, plan.frame_indices)
        return None if isinstance(found, flashcodec.DecodeError) else found  # its decoder will say so

    def seconds(self, medium: MediaInput, plan: MediaPlan) -> float:
        """Return the seconds of a core to decode a plan's frames of a coded video. They are an estimate.

        Raises DecodeError for a video that cannot be told of.
        """
        frames, seconds = sorted(set(plan.frame_indices)), 0.0
        for first in range(0, len(frames), _MOST_FRAMES):
            found = self._look(medium.where, tuple(frames[first : first + _MOST_FRAMES]))
            if isinstance(found, flashcodec.DecodeError):
                raise found
            seconds += found.seconds
        return seconds

    def work(self, plans: Sequence[MediaPlan], text_tokens: int) -> Work:
        """Return the work for media that are looked at so, beside so many text tokens."""
        pixels, seconds, told = 0, 0.0, True
        for medium, info, plan in zip(self._media, self._infos, plans, strict=True):
            if plan.kind == "image" or medium.frames:
                pixels += info.width * info.height * max(1, len(plan.frame_indices))
            elif decoding := self.decoding(medium, plan):
                seconds += decoding.seconds
            else:
                told = False
        return Work(
            prompt_tokens=text_tokens + self._in_prompt(plans),
            visual_tokens=sum(plan.tokens for plan in plans),
            image_pixels=pixels,
            video_seconds=seconds if told else None,
        )

    def text_tokens(self, prompt: ExpandedPrompt) -> int:
        """Return how many tokens of a prompt are not visual ones."""
        return len(prompt.token_ids) - self._in_prompt(prompt.media)

    def in_time(
        self, plans: Sequence[MediaPlan], text_tokens: int, outlook: Outlook, limit: float
    ) -> Sequence[MediaPlan]:
        """Return plans with fewer frames a video, for a first token within `limit` seconds.

        It may come later all the same.
        """

        def seconds(frames: int) -> float | None:
            return outlook.first_token(self.work(self._with_at_most(frames, plans), text_tokens))

        most = max((len(plan.frame_indices) for plan in plans), default=0)
        return self._with_at_most(affordable_frames(most, seconds, limit), plans)

    def _with_at_most(self, frames: int, plans: Sequence[MediaPlan]) -> list[MediaPlan]:
        """Return the plans, with other ones for the videos of which they have more frames."""
        return [
            self._processor.plan_video(info, msgspec.structs.replace(medium.options, num_frames=frames, fps=None))
            if isinstance(info, VideoInfo) and len(plan.frame_indices) > frames
            else plan
            for medium, info, plan in zip(self._media, self._infos, plans, strict=True)
        ]

    def _in_prompt(self, plans: Sequence[MediaPlan]) -> int:
        return sum(sum(self._processor.runs(plan)) for plan in plans)

    def _look(self, source: Source, frames: tuple[int, ...]) -> DecodingWork | flashcodec.DecodeError:
        """Return what decoding these frames takes, or why that cannot be told; look once only."""
        key = (source, frames)
        if key not in self._known:
            job = VideoWork(source, np.array(frames, "<i4").tobytes())
            try:
                told = self._reading.read(job, self._cancellation)
                self._known[key] = msgspec.msgpack.decode(told, type=DecodingWork)
            except flashcodec.DecodeError as error:
                self._known[key] = error
        return self._known[key]
