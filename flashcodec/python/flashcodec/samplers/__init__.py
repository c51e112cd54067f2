"""Sample clips of consecutive or evenly spaced frames, by TorchCodec's arguments and rules.

All clips of a call are decoded in one request, frames that they share once. They come as the decoder's own
FrameBatch with one dimension more: data uint8 [num_clips, num_frames_per_clip, ...], times float64
[num_clips, num_frames_per_clip].
"""

from flashcodec.samplers.by_index import clips_at_random_indices, clips_at_regular_indices
from flashcodec.samplers.by_time import clips_at_random_timestamps, clips_at_regular_timestamps

__all__ = [
    "clips_at_random_indices",
    "clips_at_random_timestamps",
    "clips_at_regular_indices",
    "clips_at_regular_timestamps",
]
