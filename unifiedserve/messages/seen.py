"""Tell clients what the model sees of a request's images and videos."""

from collections.abc import Iterator
from typing import Literal

import msgspec
from flashcodec.layouts import Layout, PatchLayout, TileLayout

from unifiedserve.messages.layouts import Views
from unifiedserve.messages.media import MediaKind
from unifiedserve.placement import Stage


class Picture(msgspec.Struct, frozen=True):
    """Describe pictures of one size, in pixels, that each frame becomes for the encoder."""

    width: int
    height: int
    count: int = 1


class Packets(msgspec.Struct, frozen=True):
    """Count a video's packets (coded pictures): those decoded for its frames, each once, and all.

    `seconds` of one core is what that takes by FlashCodec's cost model.
    """

    decode: int
    total: int
    seconds: float


class MediumPages(msgspec.Struct, frozen=True):
    """Count the pages of the buffers that a medium goes through."""

    patch: int
    visual: int


class SeenMedium(msgspec.Struct, kw_only=True):
    """Describe an image or a video of a prompt. `frames` of it (1 for an image) are looked at, as `tokens`.

    `param` is where the request has it. `width` and `height` are its own, in pixels, as displayed. A video's frames are
    its `indices`, from 0, shown at `seconds` from its beginning; both are empty for an image. `packets` are null for
    what is no coded video, and where they are not counted.
    """

    kind: MediaKind
    param: str
    width: int
    height: int
    frames: int
    indices: list[int] = []
    seconds: list[float] = []
    pictures: list[Picture]
    tokens: int
    pages: MediumPages
    packets: Packets | None = None


class RequestPages(msgspec.Struct, frozen=True):
    """Count the pages of each buffer that a request takes. Nothing of it is taken to be cached."""

    patch: int
    visual: int
    kv: int


class RequestPlan(msgspec.Struct, kw_only=True):
    """Predict how a request would be served. Media are in the order of the prompt.

    `max_tokens` is how long the answer may become. `expected_ttft` are the seconds to its first token if it came now;
    None where what it takes was not measured yet.
    """

    prompt_tokens: int
    max_tokens: int
    pages: RequestPages
    media: list[SeenMedium]
    expected_ttft: float | None = None


RoleState = Literal["serving", "draining", "starting"]


class SeenInstance(msgspec.Struct, kw_only=True):
    """Describe a worker and the stages that it hosts. Without `cores` it may use all of the engine's.

    Its pages are in the `memory` of that name.

    One that is `draining` ends the requests that it has, takes no new ones, and then `becomes` the host of other
    stages, which is `starting` until it is ready.
    """

    name: str
    stages: list[Stage]
    cores: list[int]
    memory: str
    state: RoleState
    becomes: list[Stage] | None = None


def pictures_of(layout: Layout) -> list[Picture]:
    """Return the pictures that a frame becomes in a layout."""
    return list(_pictures(layout))


def _pictures(layout: Layout) -> Iterator[Picture]:
    if isinstance(layout, TileLayout):
        yield Picture(layout.tile, layout.tile, layout.tiles)
    elif isinstance(layout, Views):
        for view in layout.views:
            height, width = view.sizes[-1] if view.sizes else (layout.height, layout.width)
            yield Picture(width // view.columns, height // view.rows, view.count)
    elif isinstance(layout, PatchLayout):
        yield Picture(layout.width, layout.height)
    else:
        *_, height, width = layout.group_shape(1)
        yield Picture(width, height)
