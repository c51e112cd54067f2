"""Conversations about more media than the common ones."""

from cases import COMMON, pixels, turns, user
from reference import Case

CASES = {
    **COMMON,
    "video of 8 frames": Case([user("video", "What happens?")], videos=[pixels(5, 8, 90, 160)]),
    "video of 9 frames": Case([user("video", "What happens?")], videos=[pixels(6, 9, 120, 120)]),
    "video of 64 frames": Case([user("Look:", "video", "Well?")], videos=[pixels(7, 64, 72, 128)], fps=0.7),
    "image and video": Case(
        [user("image", "video", "Is the image in the video?")], [pixels(8, 180, 120)], [pixels(9, 12, 100, 140)]
    ),
    "two turns": Case(turns("image", "video"), [pixels(10, 90, 90), pixels(11, 140, 60)], [pixels(12, 10, 64, 96)]),
}
