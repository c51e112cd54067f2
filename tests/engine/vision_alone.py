"""A vision worker alone: decoded media without an engine."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from torch import Tensor
from vision_requests import let_in

from flashcodec import PatchLayout
from unifiedserve.config import DecodeOn, Order, VideoDecoderName
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, Patches
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.scheduling.turn.vision import MediaCame, MediaTook, VisionFacts, VisionTurn
from unifiedserve.scheduling.vision import BufferPages
from unifiedserve.worker.vision.medium import Output
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage

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
