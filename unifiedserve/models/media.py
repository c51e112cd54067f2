"""What the stages need to know about an image or a video, and about the prompt that holds it; torch-free."""

from collections.abc import Sequence
from typing import Literal

import msgspec

MediaKind = Literal["image", "video"]

ALL_FRAMES = -1


class PromptError(ValueError):
    """A prompt or its media that the model cannot take; `param` names the option at fault, if there is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class MediaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request's own processing rules for one medium; None leaves the checkpoint's rule.

    `num_frames` is the number of frames to sample (`ALL_FRAMES`: every frame), `fps` frames a second of video;
    the two exclude each other. `max_frames` bounds either. `min_pixels`/`max_pixels` bound one resized frame.
    """

    num_frames: int | None = None
    fps: float | None = None
    max_frames: int | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None

    def check(self) -> None:
        """Raises PromptError naming the option that is out of range or contradicts another."""
        if self.num_frames is not None and self.num_frames < 1 and self.num_frames != ALL_FRAMES:
            raise PromptError(f"num_frames must be at least 1, or -1 for all, got {self.num_frames}", "num_frames")
        if self.fps is not None and not 0 < self.fps < float("inf"):
            raise PromptError(f"fps must be a positive number, got {self.fps}", "fps")
        if self.fps is not None and self.num_frames is not None:
            raise PromptError("fps and num_frames exclude each other: give one of them", "fps")
        for name in ("max_frames", "min_pixels", "max_pixels"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PromptError(f"{name} must be at least 1, got {value}", name)


class VideoInfo(msgspec.Struct, frozen=True):
    """A video as its container describes it: `fps` on average, `width` × `height` as displayed.

    `pts_seconds` are the frames' presentation times, one a frame and not always evenly spaced; empty if unknown.
    """

    num_frames: int
    fps: float
    duration: float
    width: int
    height: int
    pts_seconds: Sequence[float] = ()


class MediaPlan(msgspec.Struct, frozen=True):
    """What the vision stage must make of one image or video, and how the encoder reads it.

    `frame_indices` are the source frames to decode, in order, before temporal padding; () for an image.
    `height` × `width` are pixels after the resize. A *unit* is what the encoder can encode alone: a temporal
    group of a video, or an image. `seconds_per_unit` is 0.0 for an image.
    """

    kind: MediaKind
    frame_indices: tuple[int, ...]
    height: int
    width: int
    units: int
    patches_per_unit: int
    tokens_per_unit: int
    seconds_per_unit: float
    patch_size: int
    temporal_patch_size: int
    merge_size: int

    @property
    def tokens(self) -> int:
        """Visual tokens, which is also the number of placeholder tokens in the prompt."""
        return self.units * self.tokens_per_unit

    @property
    def patches(self) -> int:
        return self.units * self.patches_per_unit

    @property
    def grid(self) -> tuple[int, int, int]:
        """Patches in time, height and width, as `image_grid_thw`/`video_grid_thw` of transformers."""
        return self.units, self.height // self.patch_size, self.width // self.patch_size


class Prompt(msgspec.Struct):
    """Token ids with every placeholder expanded; `media` in prompt order.

    The k-th placeholder token stands for the k-th visual token, counted over all media.
    """

    token_ids: list[int]
    media: list[MediaPlan]
