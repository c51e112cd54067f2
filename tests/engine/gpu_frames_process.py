"""Decode a video, then an image, for the engine into the memory of a GPU that is a stand-in, in a process of its own;
prints as JSON, a line for each way to decode, the units' MD5s, or the error, and what the log says.

gpu_frames_process.py VIDEO IMAGE DECODE_ON[@GPU][,DECODE_ON[@GPU]] FRAME...

With a GPU the vision stage has that one, too, beside the first one, where its pages are.
"""

import ctypes
import hashlib
import json
import logging
import sys
import uuid
from pathlib import Path
from typing import Any, ClassVar

import deferred_device
import torch
from deferred import DeferredDevice
from torch import Tensor
from vision_alone import Vision

from ipc_buffers import PagePool
from unifiedserve.errors import ConfigError
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import Patches
from unifiedserve.worker.vision.medium import Output

CUDA = 2  # of DLPack
ROW_BYTES = 3 * 2 * 14 * 14
DATA_OFFSET = 32  # of DLManagedTensorVersioned's tensor: version, manager_ctx, deleter, flags


class Gpu(DeferredDevice):
    """A device that computes late, and decodes to memory of the stand-in, which is the host's."""

    frames = "cuda:0"
    seen: ClassVar[set[int]] = set()  # the numbers of the GPUs that frames came from

    def adopt(self, frames: Any) -> Tensor:
        kind, number = frames.__dlpack_device__()
        assert kind == CUDA
        self.seen.add(number)
        capsule = frames.__dlpack__(max_version=(1, 0))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        data = ctypes.c_void_p.from_address(pointer(capsule, b"dltensor_versioned") + DATA_OFFSET).value
        assert data is not None
        memory: Any = (ctypes.c_ubyte * torch.Size(frames.shape).numel()).from_address(data)
        memory.owner = capsule
        return deferred_device.view(torch.frombuffer(memory, dtype=torch.uint8).view(frames.shape))


class CarefulVision(Vision):
    """A vision stage that has let go of frames only after they have been copied."""

    def write(self, output: Output) -> Patches | None:
        message = super().write(output)
        assert output.patches is not None
        if output.patches.device == self.patches.device.torch:
            assert deferred_device.pending() == 0
        return message


def decode(path: Path, image: Path, way: str, frames: tuple[int, ...]) -> dict[str, Any]:
    decode_on: Any
    decode_on, _, gpu = way.partition("@")
    pool = PagePool.create(f"test-gpu-frames-{uuid.uuid4().hex[:12]}", 64, 16 * ROW_BYTES)
    aside = PagePool.create(f"test-gpu-frames-{uuid.uuid4().hex[:12]}", 64, 64)
    try:
        buffers = RowBuffer(pool, ROW_BYTES, torch.uint8, Gpu()), RowBuffer(aside, 16, torch.float32, Gpu())
        vision = CarefulVision(*buffers, decode_on=decode_on, frames=[gpu] if gpu else [])
        try:
            vision.ask(Ticket(1, 0.0), path, frames)
            vision.finish()
            decoded_on = sorted(vision.decoded_on)
            vision.ask_image(Ticket(2, 0.0), image)
            vision.finish()
        finally:
            vision.stage.close()
        found = {unit: hashlib.md5(rows.cpu().numpy().tobytes()).hexdigest() for unit, rows in vision.units.items()}
        units = [found[1, i] for i in range(len(found) - 1)]
        whole = {"units": units, "image": found[2, 0], "decoded_on": decoded_on, "errors": vision.errors}
        return whole | {"gpus": sorted(Gpu.seen)}
    finally:
        for each in (pool, aside):
            each.close()
            each.unlink()


def found(path: Path, image: Path, way: str, frames: tuple[int, ...]) -> dict[str, Any]:
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("unifiedserve").addHandler(handler)
    try:
        return decode(path, image, way, frames) | {"logged": logged}
    except ConfigError as error:
        return {"refused": str(error), "logged": logged}
    finally:
        logging.getLogger("unifiedserve").removeHandler(handler)


def main() -> None:
    path, image, ways, *frames = sys.argv[1:]
    for way in ways.split(","):
        print(json.dumps(found(Path(path), Path(image), way, tuple(map(int, frames)))))


if __name__ == "__main__":
    main()
