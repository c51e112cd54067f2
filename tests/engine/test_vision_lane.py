"""What the vision lane passes on, and to whom."""

from pathlib import Path
from threading import Semaphore
from unittest.mock import Mock

import pytest
from media import make_image
from PIL import Image

from flashcodec import PatchLayout
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, VisionRequest
from unifiedserve.placement import FIRST_MEMORY, Route
from unifiedserve.scheduling.turn.vision import VisionTurn
from unifiedserve.worker.vision.lane import VisionLane
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage

PLAN = MediaPlan(
    kind="image",
    layout=PatchLayout(height=56, width=56, patch_size=14, temporal_patch_size=2, merge_size=2),
    units=1,
    patches_per_unit=16,
    tokens_per_unit=4,
)
ROUTE = Route("vision", ("encode-1", "encode-2"), "prefill", "decode")


def request(*paths: Path) -> VisionRequest:
    sources = [
        MediaSource(plan=PLAN, name=f"image {unit + 1}", first_unit=unit, where=Source(path=str(path)))
        for unit, path in enumerate(paths)
    ]
    return VisionRequest(ticket=Ticket(1, 1.0, route=ROUTE), media=sources)


class Lane:
    """A vision lane without a worker, and what it does to the outside."""

    def __init__(self, patches: RowBuffer, visual: RowBuffer) -> None:
        self._finished = Semaphore(0)
        self.stage = VisionStage({FIRST_MEMORY: MediaBuffers(patches, visual)}, 1, 1, self._finished.release)
        self.port = Mock()
        self.port.neighbours.first_of_vision = Mock(return_value={})
        pending = dict.fromkeys(ROUTE.encode, 0)
        self.port.status.least_pending = lambda encoders: min(encoders, key=pending.__getitem__)
        self.port.status.give = lambda sender, receiver, pages: pending.update({receiver: pending[receiver] + pages})
        self.lane = VisionLane(self.stage, VisionTurn("fcfs"), self.port)

    def serve(self, asked: VisionRequest) -> None:
        """Let all media of a request be read before the lane looks at any."""
        self.lane.accept(asked)
        self.lane.step()
        for _ in asked.media:
            assert self._finished.acquire(timeout=60)
        self.lane.step()


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.fromarray(make_image(1, 56, 56)).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def test_a_request_all_of_whose_media_are_bad_fails_once(
    patches: RowBuffer, visual: RowBuffer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    lane = Lane(patches, visual)
    try:
        lane.serve(request(bad, bad))
    finally:
        lane.lane.close()
    assert lane.port.outbox.fail.call_count == 1
    assert not caplog.records
    assert patches.pool.used_pages() == visual.pool.used_pages() == 0


def test_units_go_to_the_encoder_with_the_least_to_do_and_all_are_told_of_the_last(
    patches: RowBuffer, visual: RowBuffer, picture: Path
) -> None:
    lane = Lane(patches, visual)
    try:
        lane.serve(request(picture, picture, picture))
    finally:
        lane.lane.close()
    sent = [(call.args[0], call.args[1]) for call in lane.port.outbox.send.call_args_list]
    assert [host for host, message in sent if message.units] == ["encode-1", "encode-2", "encode-1"]
    assert sorted(unit for _, message in sent for unit in message.units) == [0, 1, 2]
    last = {host for host, message in sent if message.last}
    assert last == set(ROUTE.encode)
    assert lane.lane.counts().popitem()[1] == (0, 0)
