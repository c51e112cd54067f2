"""Predict the time of a request's first token, and how many frames allow it."""

from collections.abc import Callable

import msgspec

from unifiedserve.messages.costs import Costs

_SMALLER = 0.8  # of the frames are tried next: nobody misses fewer


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Count what a first token takes: tokens to prefill and to encode, pixels of images, videos to decode.

    `video_seconds` is what FlashCodec's cost model tells for the videos; None if it cannot be told.
    """

    prompt_tokens: int
    visual_tokens: int = 0
    image_pixels: int = 0
    video_seconds: float | None = 0.0


class Outlook(msgspec.Struct, frozen=True):
    """Tell what a request that comes now can expect: seconds of waiting for others, and the cost of work."""

    wait: float = 0.0
    costs: Costs = Costs()

    def first_token(self, work: Work) -> float | None:
        """Return the seconds to the first token, as if one stage followed the other.

        None if the cost of anything that it takes is not known yet.
        """
        if work.video_seconds is None:
            return None
        parts = [
            (work.prompt_tokens, self.costs.prompt_token),
            (work.visual_tokens, self.costs.visual_token),
            (work.image_pixels, self.costs.image_pixel),
            (work.video_seconds, self.costs.video_second),
        ]
        if any(amount and not cost for amount, cost in parts):
            return None
        return self.wait + sum(amount * cost for amount, cost in parts)


def affordable_frames(frames: int, seconds: Callable[[int], float | None], limit: float) -> int:
    """Return how many of so many frames to look at. The first token then comes within `limit` seconds.

    `seconds` tells when it comes with a number of frames, and must not fall as that grows. All of them are taken where
    they come in time or it cannot tell; else the most of a few numbers, each a fifth below the one before; one if none
    is in time.
    """

    def late(count: int) -> bool:
        expected = seconds(count)
        return expected is not None and expected > limit

    if frames <= 1 or not late(frames):
        return frames
    fewer = _fewer(frames)
    low, high = 0, len(fewer) - 1
    while low < high:
        middle = (low + high) // 2
        if late(fewer[middle]):
            low = middle + 1
        else:
            high = middle
    return fewer[low]


def _fewer(frames: int) -> list[int]:
    """Return the numbers to try below `frames`, down to 1."""
    tried = []
    while frames > 1:
        frames = int(frames * _SMALLER)
        tried.append(max(1, frames))
    return tried
