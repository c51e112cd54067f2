"""Cut clips out of a video by index and by time: `python examples/sample_clips.py`."""

import flashcodec
from unifiedserve.samples import FOLDER

video = flashcodec.VideoDecoder(FOLDER / "telescope.mp4", dimension_order="NHWC")
print(f"{len(video)} frames, {video.metadata.average_fps:g} a second")

by_time = flashcodec.samplers.clips_at_regular_timestamps(
    video, seconds_between_clip_starts=2.0, num_frames_per_clip=4, seconds_between_frames=0.25
)
for clip, times in zip(by_time.data, by_time.pts_seconds, strict=True):
    print("clip", clip.shape, "at", ", ".join(f"{seconds:.2f}" for seconds in times), "s")

# Clips that overlap are decoded in one request, and frames that they share once.
by_index = flashcodec.samplers.clips_at_random_indices(video, num_clips=8, num_frames_per_clip=16)
print("random clips", by_index.data.shape)
