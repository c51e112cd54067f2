"""What decodes videos for the engine: who goes first, and another decoder in FlashCodec's place."""

import sys
import threading
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from media import Clip
from vision_alone import TIMEOUT, Vision, plan

import flashcodec
from unifiedserve.config import EngineConfig, Order
from unifiedserve.device import select_device
from unifiedserve.device.cpu.device import CpuDevice
from unifiedserve.engine.resources import check_packages
from unifiedserve.errors import ConfigError
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import Source
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource
from unifiedserve.worker.vision.medium import Medium
from unifiedserve.worker.vision.other_videos import OtherDecoder, OtherVideos
from unifiedserve.worker.vision.videos import RunningVideos


class Gate:
    """A video file whose reading waits until the gate is opened."""

    def __init__(self, path: Path) -> None:
        self.file: BinaryIO = path.open("rb")
        self.opened = threading.Event()
        self.opened.set()
        self.used = threading.Event()

    def read(self, size: int) -> bytes:
        self.used.set()
        assert self.opened.wait(TIMEOUT)
        return self.file.read(size)

    def seek(self, offset: int, whence: int) -> int:
        return self.file.seek(offset, whence)


LONG, SHORT = tuple(range(16)), (0, 2, 4, 6)
OLD, NEW = Ticket(1, arrival=1.0, due=500.0, work=90.0), Ticket(2, arrival=2.0, due=100.0, work=1.0)


@pytest.mark.parametrize(
    ("order", "tickets", "expected"),
    [
        ("fcfs", [Ticket(1, 0.0, 3), Ticket(2, 0.0, -(2**31))], [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("fcfs", [OLD, NEW], [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]),
        ("slack", [OLD, NEW], [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("shortest", [OLD, NEW], [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
    ],
    ids=["priority", "fcfs", "slack", "shortest"],
)
def test_videos_are_decoded_in_the_order_of_service(
    patches: RowBuffer,
    visual: RowBuffer,
    clips: Callable[[int], Clip],
    monkeypatch: pytest.MonkeyPatch,
    order: Order,
    tickets: list[Ticket],
    expected: list[int],
) -> None:
    """A long video has come first, then a short one; both wait for the only engine."""
    codecs: list[flashcodec.FlashCodec] = []
    asked: list[int] = []
    everybody_asked = threading.Event()

    class Watched(flashcodec.FlashCodec):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            codecs.append(self)

        def add_decoding_request(self, *arguments: Any, **named: Any) -> int:
            request = super().add_decoding_request(*arguments, **named)
            asked.append(request)
            if len(asked) == 3:
                everybody_asked.set()
            return request

    monkeypatch.setattr(flashcodec, "FlashCodec", Watched)
    path = clips(16).path
    vision = Vision(patches, visual, order=order)
    try:
        gate = Gate(path)
        gated = flashcodec.analyse_bitstream(gate)
        gate.opened.clear()
        gate.used.clear()
        codecs[0].add_decoding_request(gated, [0])  # keeps the only engine busy
        assert gate.used.wait(TIMEOUT)
        for ticket, frames in zip(tickets, (LONG, SHORT), strict=True):
            vision.ask(ticket, path, frames)
        assert everybody_asked.wait(TIMEOUT)
        gate.opened.set()
        vision.finish()
    finally:
        vision.stage.close()
    assert vision.errors == {}
    assert vision.order == expected


def test_a_turn_that_changes_is_told_to_the_engines(
    patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has missed the target goes behind those who can still meet theirs."""
    turns: list[float] = []
    begun = threading.Event()

    class Watched(flashcodec.FlashCodec):
        def add_decoding_request(self, *arguments: Any, **named: Any) -> int:
            turns.append(named["turn"])
            request = super().add_decoding_request(*arguments, **named)
            begun.set()
            return request

        def set_turn(self, request: int, turn: float) -> None:
            turns.append(turn)
            super().set_turn(request, turn)

    monkeypatch.setattr(flashcodec, "FlashCodec", Watched)
    vision = Vision(patches, visual, order="slack")
    try:
        vision.ask(Ticket(1, arrival=1.0, due=10.0, work=2.0), clips(16).path, LONG)
        assert begun.wait(TIMEOUT)
        for now in (3.0, 9.0):
            for uid, turn in vision.turns(now).items():
                vision.stage.take_turn(uid, turn)
        vision.finish()
    finally:
        vision.stage.close()
    assert turns == [8.0, 1.0 + 2 * 9.0]


class PyNvVideoCodec:
    """What is used of that package, over cores."""

    class OutputColorType:
        RGB = "RGB"

    class SimpleDecoder:
        def __init__(self, source: str | bytes, gpu_id: int, use_device_memory: bool, output_color_type: str) -> None:
            assert (gpu_id, use_device_memory, output_color_type) == (0, True, "RGB")
            self._decoder = flashcodec.VideoDecoder(source, dimension_order="NHWC")

        def __len__(self) -> int:
            return len(self._decoder)

        def get_batch_frames_by_index(self, indices: list[int]) -> list[Any]:
            assert indices == sorted(set(indices))
            return list(self._decoder.get_frames_at(indices).data)


class HostGpu(CpuDevice):
    """A device for which PyNvVideoCodec decodes."""

    frames = "cuda:0"


def test_pynvvideocodec_gives_the_same_patches(
    patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", PyNvVideoCodec)
    reference = Vision(patches, visual)
    monkeypatch.setattr(patches, "device", HostGpu())
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video at all" * 100)
    vision = Vision(patches, visual, "pynvvideocodec")
    try:
        reference.ask(Ticket(1, 0.0), clips(8).path, (7, 0, 3, 3, 1))
        reference.finish()
        vision.ask(Ticket(1, 0.0), clips(8).path, (7, 0, 3, 3, 1))
        vision.ask(Ticket(2, 0.0), broken, (0, 1))
        vision.ask(Ticket(3, 0.0), clips(8).path, (0, 100))
        vision.finish()
    finally:
        vision.stage.close()
        reference.stage.close()
    assert "PyNvVideoCodec: no frame 100: there are 8" in vision.errors[3]
    assert vision.errors.keys() == {2, 3}
    assert vision.units.keys() == reference.units.keys()
    assert all(torch.equal(rows, reference.units[unit]) for unit, rows in vision.units.items())


@pytest.mark.parametrize(("turn", "order"), [(2.0, ["late", "later"]), (0.5, ["later", "late"])])
def test_another_decoder_takes_the_lowest_priority_first_then_the_earliest_turn(turn: float, order: list[str]) -> None:
    taken: list[str] = []
    begun, gate, done = threading.Event(), threading.Event(), threading.Event()

    def open_video(source: MediaSource) -> Any:
        begun.set()
        assert gate.wait(TIMEOUT)
        return lambda frames: np.zeros((len(frames), 56, 56, 3), np.uint8)

    def take(medium: Medium, decoded: flashcodec.DecodingOutput) -> None:
        taken.append(medium.name)
        if len(taken) == 4:
            done.set()

    videos = OtherVideos(OtherDecoder("none", open_video), 1, take)
    running = {
        name: RunningVideos(priority, turn)
        for name, priority, turn in (("first", 0, 0.0), ("late", 5, 1.0), ("early", -1, 9.0), ("later", 5, 1.0))
    }
    for name, each in running.items():
        source = MediaSource(plan=plan((0, 1)), name=name, where=Source(path=""))
        videos.begin(Medium.of(1, source), source, each)
        assert begun.wait(TIMEOUT)  # at work on the first
    running["later"].turn = turn
    videos.take_turn(running["later"])
    gate.set()
    assert done.wait(TIMEOUT)
    videos.close()
    assert taken == ["first", "early", *order]


@pytest.mark.parametrize("frames", [(0, 1, 2, 3, 4, 5, 6), (7, 0, 3), (2, 2)])
def test_torchcodec_gives_the_same_patches(
    patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip], frames: tuple[int, ...]
) -> None:
    pytest.importorskip("torchcodec.decoders", reason="TorchCodec is what is tried")
    found = {}
    for decoder in ("flashcodec", "torchcodec"):
        vision = Vision(patches, visual, decoder)
        try:
            vision.ask(Ticket(1, 0.0), clips(8).path, frames)
            vision.finish()
        finally:
            vision.stage.close()
        assert vision.errors == {}
        found[decoder] = vision.units
    assert found["torchcodec"].keys() == found["flashcodec"].keys() == {(1, i) for i in range(-(-len(frames) // 2))}
    for unit, rows in found["torchcodec"].items():
        assert int((rows.int() - found["flashcodec"][unit].int()).abs().max()) <= 1
    assert patches.pool.used_pages() == 0


def test_torchcodecs_errors_end_their_request_only(
    patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip], tmp_path: Path
) -> None:
    pytest.importorskip("torchcodec.decoders", reason="TorchCodec is what is tried")
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video at all" * 100)
    vision = Vision(patches, visual, "torchcodec")
    try:
        vision.ask(Ticket(1, 0.0), broken, (0, 1))
        vision.ask(Ticket(2, 0.0), clips(8).path, (0, 100))
        vision.ask(Ticket(3, 0.0), clips(8).path, (0, 1))
        vision.finish()
    finally:
        vision.stage.close()
    assert vision.errors.keys() == {1, 2}
    assert vision.errors[1].startswith("video 1: ")
    assert "TorchCodec: " in vision.errors[1]
    assert vision.units.keys() == {(3, 0)}
    assert patches.pool.used_pages() == 0


def test_contradictions_are_named_at_the_start(patches: RowBuffer, visual: RowBuffer) -> None:
    with pytest.raises(ConfigError, match="--decode-on works with --video-decoder flashcodec only"):
        EngineConfig.of(video_decoder="torchcodec", decode_on="cpu").check()
    with pytest.raises(ConfigError, match="--decode-on gpu: with --device cpu cores decode"):
        select_device(EngineConfig.of(device="cpu", decode_on="gpu"))
    with pytest.raises(ConfigError, match="--video-decoder pynvvideocodec decodes on a GPU only"):
        Vision(patches, visual, "pynvvideocodec")


def test_a_package_that_is_not_installed_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    check_packages(EngineConfig())
    installed = {"flashcodec"}
    monkeypatch.setattr(util, "find_spec", lambda name: object() if name in installed else None)
    with pytest.raises(ConfigError, match=r"--carrier nixl needs the package nixl: pip install 'unifiedserve\[nixl\]'"):
        check_packages(EngineConfig.of(carrier="nixl"))
    with pytest.raises(ConfigError, match="--video-decoder torchcodec needs the package torchcodec: pip install"):
        check_packages(EngineConfig.of(video_decoder="torchcodec"))
