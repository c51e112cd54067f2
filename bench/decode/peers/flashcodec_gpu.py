"""FlashCodec with frames in a GPU's memory, [n, height, width, 3]: by NVDEC, by cores, or as it chooses."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from flashcodec.layouts import Layout

import flashcodec
from peers.flashcodec_patches import MEAN, ROW, STD
from peers.sharing import Indices, Size

DecodeOn = Literal["fastest", "cpu", "gpu"]


def frames(path: str, indices: Indices, size: Size, threads: int) -> Any:
    return _frames(path, indices, size, "fastest")


def nvdec(path: str, indices: Indices, size: Size, threads: int) -> Any:
    """Decode on NVDEC whatever the estimates say."""
    return _frames(path, indices, size, "gpu")


def one_engine(path: str, indices: Indices, size: Size, threads: int) -> Any:
    """Decode on one NVDEC engine, as decoders do that read a file from one end to the other."""
    with flashcodec.FlashCodec(1, device="cuda") as codec:
        return _frames(path, indices, size, "gpu", codec)


def cores(path: str, indices: Indices, size: Size, threads: int) -> Any:
    """Decode on cores and copy to the GPU."""
    return _frames(path, indices, size, "cpu")


def patches(path: str, indices: Indices, size: tuple[int, int], threads: int) -> Any:
    """Return normalised patches float32 [rows, 1176]."""
    layout = flashcodec.PatchLayout(*size)
    groups = -(-len(indices) // layout.group_frames)
    out = torch.empty((groups * layout.rows_per_group, layout.row_bytes), device="cuda")
    scale = _by_colour([1 / (255 * deviation) for deviation in STD])
    shift = _by_colour([mean / deviation for mean, deviation in zip(MEAN, STD, strict=True)])
    for output in _outputs(path, indices, layout, "fastest"):
        rows = out[output.first_group * layout.rows_per_group :][: layout.rows_per_group]
        torch.sub(torch.from_dlpack(output.gpu_data).view(rows.shape) * scale, shift, out=rows)
        torch.cuda.synchronize()  # before its memory is used again
    return out


def floor(path: str, indices: Indices, threads: int) -> dict[str, float]:
    """Measure the rate of all NVDEC units, each decoder with a share of the video's frames, and divide what must be
    decoded by it.
    """
    stream = flashcodec.analyse_bitstream(path)
    plan = stream.plan(indices)
    with flashcodec.FlashCodec(device="cuda") as codec:
        engines = next(kind.engines for kind in codec.estimate(stream, [0], decode_on="gpu"))
        shares = [
            range(i * stream.num_frames // engines, (i + 1) * stream.num_frames // engines) for i in range(engines)
        ]
        _run(codec, [_request(codec, stream, [share.start], "gpu") for share in shares])  # makes the decoders
        seconds = timed(lambda: _run(codec, [_request(codec, stream, share, "gpu") for share in shares]))
        rate = stream.num_frames / seconds
    each = 1e3 / rate
    wall = plan.packets_needed / rate
    packets = {"packets": plan.packets_needed, "of_packets": plan.packets_total}
    return {"wall": wall, "cpu": wall, **packets, "reference_ms": each, "other_ms": each}


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that some work on the GPU takes."""
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _frames(
    path: str, indices: Indices, size: Size, decode_on: DecodeOn, codec: flashcodec.FlashCodec | None = None
) -> Any:
    stream = flashcodec.analyse_bitstream(path)
    height, width = size or (stream.height, stream.width)
    out = torch.empty((len(indices), height, width, 3), dtype=torch.uint8, device="cuda")
    for output in _outputs(stream, indices, flashcodec.RGBLayout(height, width, "NHWC"), decode_on, codec):
        out[output.first] = torch.from_dlpack(output.gpu_data)[0]
        torch.cuda.synchronize()  # before its memory is used again
    return out


def _outputs(
    source: Any, indices: Indices, layout: Layout, decode_on: DecodeOn, codec: flashcodec.FlashCodec | None = None
) -> Iterator[flashcodec.DecodingOutput]:
    codec = codec or _codec()
    codec.add_decoding_request(source, indices, layout, decode_on=decode_on)
    done = False
    while not done:
        output = codec.get_decoding_output()
        assert output is not None
        if output.error is not None:
            raise output.error
        yield output
        done = output.done


def _codec() -> flashcodec.FlashCodec:
    """Return one for the calling thread, over the engines that the process shares."""
    if not hasattr(_kept, "codec"):
        _kept.codec = flashcodec.FlashCodec(device="cuda")
    return _kept.codec


def _request(codec: flashcodec.FlashCodec, stream: Any, frames: Sequence[int], decode_on: DecodeOn) -> int:
    return codec.add_decoding_request(stream, frames, flashcodec.RGBLayout(16, 16), decode_on=decode_on)


def _run(codec: flashcodec.FlashCodec, requests: list[int]) -> None:
    """Take all outputs of some requests."""
    left = set(requests)
    while left:
        output = codec.get_decoding_output()
        assert output is not None
        if output.error is not None:
            raise output.error
        if output.done:
            left.discard(output.request)


def _by_colour(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, device="cuda").repeat_interleave(ROW)


_kept = threading.local()
