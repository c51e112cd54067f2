"""What decodes videos for the engine: who goes first, and another decoder in FlashCodec's place."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pytest
import torch
from media import Clip
from torch import Tensor
from vision_requests import let_in

import flashcodec
from flashcodec import PatchLayout
from unifiedserve.config import DecodeOn, EngineConfig, Order, VideoDecoderName
from unifiedserve.device import select_device
from unifiedserve.device.cpu.device import CpuDevice
from unifiedserve.engine.resources import check_packages
from unifiedserve.errors import ConfigError
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, Patches
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.scheduling.turn.vision import MediaCame, MediaTook, VisionFacts, VisionTurn
from unifiedserve.scheduling.vision import BufferPages
from unifiedserve.worker.vision.medium import Medium, Output
from unifiedserve.worker.vision.other_videos import OtherDecoder, OtherVideos
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage
from unifiedserve.worker.vision.videos import RunningVideos

TIMEOUT = 60.0


def plan(frames: tuple[int, ...]) -> MediaPlan:
    return MediaPlan(
        kind="video",
        frame_indices=frames,
        layout=PatchLayout(height=56, width=56, patch_size=14, temporal_patch_size=2, merge_size=2),
        units=-(-len(frames) // 2),
        patches_per_unit=16,
        tokens_per_unit=4,
    )


class Vision:
    """A vision stage, and what comes out of it."""

    def __init__(
        self,
        patches: RowBuffer,
        visual: RowBuffer,
        decoder: VideoDecoderName = "flashcodec",
        decode_on: DecodeOn = "fastest",
        order: Order = "fcfs",
        frames: Sequence[str] = (),
    ) -> None:
        self.patches, self.visual = patches, visual
        self.wake = threading.Event()
        buffers = {FIRST_MEMORY: MediaBuffers(patches, visual)}
        self.stage = VisionStage(buffers, 1, 1, self.wake.set, decoder, decode_on, frames=frames)
        self.turn = VisionTurn(order)
        self.decoded_on: set[str] = set()
        self.order: list[int] = []  # of the requests, by their outputs
        self.units: dict[tuple[int, int], Tensor] = {}
        self.errors: dict[int, str] = {}

    def ask(self, ticket: Ticket, path: Path, frames: tuple[int, ...], now: float = 3.0) -> None:
        source = MediaSource(plan=plan(frames), name=f"video {ticket.uid}", where=Source(path=str(path)))
        self._let_in(ticket, source, now)

    def ask_image(self, ticket: Ticket, path: Path) -> None:
        one = msgspec.structs.replace(plan(()), kind="image", units=1)
        self._let_in(ticket, MediaSource(plan=one, name="image", where=Source(path=str(path))))

    def _let_in(self, ticket: Ticket, source: MediaSource, now: float = 3.0) -> None:
        """Let a request in as the lane does, at a time (seconds)."""
        self.turn.note(MediaCame(ticket, 0, 0))
        let_in(self.stage, ticket, source, self.turns(now)[ticket.uid])
        self.turn.note(MediaTook(ticket.uid))

    def turns(self, now: float) -> Mapping[int, float]:
        """Return the turns that have changed by a time (seconds)."""
        return self.turn.take(VisionFacts(now, {FIRST_MEMORY: BufferPages(0, 0)})).turns

    def finish(self) -> None:
        while self.stage.decoding:
            assert self.wake.wait(TIMEOUT)
            self.wake.clear()
            for output in self.stage.take_outputs():
                self.order.append(output.uid)
                if output.error:
                    self.errors[output.uid] = output.error
                    self.stage.drop(output.uid)
                    continue
                self.decoded_on.add(output.decoded_on)
                message = self.write(output)
                if message is None:
                    continue
                self.visual.release([page for pages in message.visual for page in pages])
                for unit, pages in zip(message.units, message.pages, strict=True):
                    self.units[output.uid, unit] = self.patches.get(self.patches.spread(pages, 16), 0, 16)
                    self.patches.pool.release(pages)

    def write(self, output: Output) -> Patches | None:
        return self.stage.write(output)


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
