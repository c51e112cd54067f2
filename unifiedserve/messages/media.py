"""Describe an image or a video for the stages, and the prompt that holds it.

Nothing here needs torch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from flashcodec.layouts import Layout, PatchLayout, TileLayout

from unifiedserve.messages.layouts import View, Views

MediaKind = Literal["image", "video"]

ALL_FRAMES = -1


class PromptError(ValueError):
    """Signal a prompt or media that the model cannot take. `param` names the option at fault, if there is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class MediaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Set a request's own processing rules for one medium. None leaves the checkpoint's rule.

    `num_frames` is the number of frames to sample (`ALL_FRAMES`: every frame), `fps` frames a second of video;
    the two exclude each other. `max_frames` bounds either. `min_pixels`/`max_pixels` bound one resized frame.
    """

    num_frames: int | None = None
    fps: float | None = None
    max_frames: int | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None

    def check(self, kind: MediaKind) -> None:
        """Raise PromptError naming an option that is wrong.

        It is out of range, contradicts another or is not for such media.
        """
        if kind == "image":
            for name in ("num_frames", "fps", "max_frames"):
                if getattr(self, name) is not None:
                    raise PromptError(f"{name} is an option of videos, not of images", name)
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


class Source(msgspec.Struct, frozen=True):
    """Locate the bytes of a medium: `size` of an arena, from `start` on, or a file."""

    arena: str | None = None
    path: str | None = None
    size: int = 0
    start: int = 0

    def pieces(self, sizes: Iterable[int]) -> "Iterator[Source]":
        """Yield where the parts of these sizes are, one after the other."""
        start = self.start
        for size in sizes:
            yield Source(self.arena, self.path, size, start)
            start += size


class VideoInfo(msgspec.Struct, frozen=True):
    """Describe a video as its container does: `fps` on average, `width` × `height` as displayed.

    `pts_seconds` are the frames' presentation times, one a frame and not always evenly spaced; empty if unknown.
    """

    num_frames: int
    fps: float
    duration: float
    width: int
    height: int
    pts_seconds: Sequence[float] = ()


class DecodingWork(msgspec.Struct, frozen=True):
    """Estimate the decoding of some frames: `packets` of a `total`, and `seconds` by FlashCodec's cost model."""

    packets: int
    total: int
    seconds: float


class MediaPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan what vision makes of one image or video, and how the encoder reads it.

    `frame_indices` are the source frames to decode, in order, before temporal padding; () for an image. A *unit* is
    what the encoder can encode alone: a temporal group of a video, an image, or a tile of one. `patches_per_unit` are
    rows of the patch buffer, whatever the layout makes of them. `tail_tokens` follow the last unit and belong to none.
    `timestamps` are seconds of each unit and `duration` those of the video where the prompt tells them,
    `seconds_per_unit` the time between units where positions do. `source` is the (height, width) of the picture
    itself where its visual tokens depend on that.
    """

    kind: MediaKind
    frame_indices: tuple[int, ...] = ()
    layout: Layout
    units: int
    patches_per_unit: int
    tokens_per_unit: int
    tail_tokens: int = 0
    seconds_per_unit: float = 0.0
    timestamps: tuple[float, ...] = ()
    source: tuple[int, int] | None = None
    duration: float = 0.0

    @property
    def tokens(self) -> int:
        """Return how many visual tokens there are. As many tokens of the prompt stand for them, where any do."""
        return self.units * self.tokens_per_unit + self.tail_tokens

    def unit_tokens(self, unit: int) -> int:
        """Return visual tokens that come with a unit, counted from 0: the tail comes with the last."""
        return self.tokens_per_unit + (self.tail_tokens if unit == self.units - 1 else 0)

    @property
    def patches(self) -> int:
        return self.units * self.patches_per_unit

    @property
    def group_size(self) -> int:
        """Return frames of a video that are decoded into units together."""
        return self.layout.group_frames

    @property
    def units_per_group(self) -> int:
        """Return units of such a group of frames, or of an image."""
        return self.units // max(1, -(-len(self.frame_indices) // self.group_size))

    def frames_of(self, groups: Sequence[int]) -> tuple[int, ...]:
        """Return the frames of these groups of a video, in order."""
        size = self.group_size
        return tuple(frame for group in groups for frame in self.frame_indices[group * size : (group + 1) * size])

    @property
    def grid(self) -> tuple[int, int, int]:
        """Return patches in time, height and width, as `image_grid_thw`/`video_grid_thw` of transformers.

        Raises TypeError if the layout is not one of patches.
        """
        if not isinstance(self.layout, PatchLayout):
            raise TypeError(f"a layout of {type(self.layout).__name__} has no grid")
        return self.units, *self.layout.grid

    @property
    def tiles(self) -> TileLayout:
        """Return the layout, which is one of tiles; TypeError if it is not."""
        if not isinstance(self.layout, TileLayout):
            raise TypeError(f"a layout of {type(self.layout).__name__} has no tiles")
        return self.layout

    @property
    def views(self) -> tuple[View, ...]:
        """Return the views of the layout, which has some; TypeError if it has none."""
        if not isinstance(self.layout, Views):
            raise TypeError(f"a layout of {type(self.layout).__name__} has no views")
        return self.layout.views


class ExpandedPrompt(msgspec.Struct):
    """Hold token ids with every placeholder expanded.

    `media` is in prompt order; `order` says which of the request's each is. The k-th token with a visual id stands for
    the k-th visual token, counted over all media; where visual tokens are only attended to, for the k-th medium.
    """

    token_ids: list[int]
    media: list[MediaPlan]
    order: list[int]
