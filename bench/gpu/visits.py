"""List the items of four runs on a machine that is lent for half an hour.

The order is chosen so that a run tells most as soon as it can. A fresh machine builds again, so each visit does. Items
that can wedge a GPU are last.
"""

from dataclasses import replace
from typing import NamedTuple

from bench.gpu.item import Item
from bench.gpu.parts import ITEMS


class Turn(NamedTuple):
    """Give an item a place in a visit: its limit, and the seconds that no item before it can take."""

    item: str
    limit: float
    reserved: float


_READY = (Turn("imports", 180, 60), Turn("build", 150, 55), Turn("build_flashcodec", 150, 50))

VISITS = {
    "first": (
        Turn("imports", 180, 60),
        Turn("doctor", 60, 10),
        Turn("build", 150, 55),
        Turn("build_flashcodec", 150, 50),
        Turn("sandbox", 90, 15),
        Turn("zygote", 60, 15),
        Turn("memory_tests", 60, 15),
        Turn("kernel_times", 80, 25),
        Turn("families", 90, 60),
        Turn("stage_times", 80, 40),
        Turn("decode_floor", 80, 50),
        Turn("gpu_pictures", 30, 15),
        Turn("nvdec_frames", 40, 20),
        Turn("nvdec_mps", 60, 25),
    ),
    "second": (
        *_READY,
        Turn("sandbox", 90, 15),
        Turn("dummy_7b", 150, 90),
        Turn("nvdec_rates", 60, 25),
        Turn("nvdec_engines", 60, 30),
        Turn("nvdec_costs", 30, 15),
        Turn("nvjpeg", 30, 10),
        Turn("bf16_logits", 60, 15),
        Turn("kernel_tests", 180, 60),
        Turn("kills", 240, 80),
    ),
    "third": (
        *_READY,
        Turn("sandbox", 90, 15),
        Turn("serve_beside", 300, 240),
        Turn("memories", 90, 20),
        Turn("faults", 90, 40),
        Turn("mps_fault", 60, 15),
        Turn("racecheck", 100, 20),
    ),
    "fourth": (
        *_READY,
        Turn("sandbox", 90, 15),
        Turn("ranks", 150, 5),
        Turn("batch_invariance", 240, 130),
        Turn("kernel_tests", 180, 60),
        Turn("stage_times", 80, 40),
    ),
}


def of_visit(visit: str) -> list[Item]:
    """Return a visit's items, with its limits."""
    return [replace(ITEMS[turn.item], limit=turn.limit, reserved=turn.reserved) for turn in VISITS[visit]]
