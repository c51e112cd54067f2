"""Plans with layouts of every kind, as they travel between processes and as the caches' keys see them."""

import msgspec
import pytest

from flashcodec import Layout, PatchLayout, RGBLayout, TileLayout
from unifiedserve.messages.layouts import View, Views
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, VisionRequest, pack, unpack

LAYOUTS: list[Layout] = [
    PatchLayout(112, 56, 14, 2, 2),
    PatchLayout(112, 56, 14, 2, 1),
    RGBLayout(56, 70),
    RGBLayout(56, 70, interpolation="bilinear", crop=(40, 40), square=(1, 2, 3)),
    TileLayout(2, 3, 28),
    TileLayout(2, 3, 28, "first", (56, 60), "bilinear", corner=True),
    Views(56, 70, (View(((28, 28), (14, 14)), 2, 2), View(()))),
    Views(56, 70, (View(((28, 28),)),), "lanczos"),
]


def plan(layout: Layout) -> MediaPlan:
    return MediaPlan(kind="image", layout=layout, units=1, patches_per_unit=1, tokens_per_unit=1)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_layout_arrives_as_it_was_sent(layout: Layout) -> None:
    message = VisionRequest(ticket=Ticket(1, 0.0, 0), media=[MediaSource(plan=plan(layout), name="image 1")])
    received = unpack(pack(message))
    assert isinstance(received, VisionRequest)
    (medium,) = received.media
    assert type(medium.plan.layout) is type(layout)
    assert medium.plan.layout == layout


def test_no_two_layouts_are_encoded_alike() -> None:
    encoded = [msgspec.msgpack.encode(plan(layout)) for layout in LAYOUTS]
    assert len(set(encoded)) == len(LAYOUTS)
    assert encoded == [msgspec.msgpack.encode(plan(layout)) for layout in LAYOUTS]
