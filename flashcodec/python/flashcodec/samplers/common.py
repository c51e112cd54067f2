"""Share what all samplers need."""

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from flashcodec.decoder import BatchT, Decoder

Policy = Literal["repeat_last", "wrap", "error"]


class Random(Protocol):
    """Draw random numbers. numpy.random.Generator is one."""

    def integers(self, low: int, high: int, size: int) -> npt.NDArray[np.int64]: ...
    def random(self, size: int) -> npt.NDArray[np.float64]: ...


def check_clips(decoder: Decoder[Any, Any, BatchT], num_frames_per_clip: int, policy: Policy) -> None:
    if num_frames_per_clip <= 0:
        raise ValueError(f"num_frames_per_clip ({num_frames_per_clip}) must be strictly positive")
    if policy not in ("repeat_last", "wrap", "error"):
        raise ValueError(f"Invalid policy ({policy}). Supported values are repeat_last, wrap, error.")
    if decoder.on_error == "skip":
        raise ValueError('clips of equal length need on_error="raise" or "nearest", the decoder has "skip"')


def places_in_clips(inside: npt.NDArray[np.bool_], policy: Policy) -> npt.NDArray[np.int64]:
    """Return which place of its clip fills each place, int64 [clips, n].

    `inside` tells the places within the video: the first ones of each clip, one at least.
    """
    clips, length = inside.shape
    places = np.broadcast_to(np.arange(length), (clips, length))
    if inside.all():
        return places
    if policy == "error":
        raise ValueError(
            "A clip reaches beyond the number of frames in the video, which the policy 'error' forbids. "
            "Leave sampling_range_end to its default, or choose another policy."
        )
    lengths = inside.sum(axis=1, keepdims=True)
    filled: npt.NDArray[np.int64] = places % lengths if policy == "wrap" else np.minimum(places, lengths - 1)
    return filled
