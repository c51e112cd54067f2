"""NVDEC through FlashCodec: are the frames those of the cores, and how many come out a second."""

import runpy
import time
from typing import Any

import torch
from torch import Tensor

from bench.gpu import machine
from bench.gpu.figures import Figures
from flashcodec import Bitstream, FlashCodec, RGBLayout, VideoDecoder, analyse_bitstream

LAYOUT = RGBLayout(224, 224)
AT_ONCE = (1, 2, 4, 8, 16, 32)  # requests for all frames of the clip


def pictures(figures: Figures) -> None:
    """Lay pictures out by the GPU's threads and compare each with the cores' own."""
    runpy.run_path(str(machine.ROOT / "tests/flashcodec/gpu_points.py"), run_name="__main__")
    figures.add(same=True)


def frames(figures: Figures, name: str) -> None:
    """Decode every frame of a clip on NVDEC and on cores; tell how many are the same, and how far off the others."""
    stream = analyse_bitstream(machine.carried_clip(name))
    wanted = list(range(stream.num_frames))
    with FlashCodec(device="cuda") as codec:
        figures.add(engines=codec.num_engines)
        start = time.perf_counter()
        found = _decoded(codec, stream, wanted)
        figures.add(cold_s=time.perf_counter() - start)
        start = time.perf_counter()
        _decoded(codec, stream, wanted)
        figures.add(warm_s=time.perf_counter() - start, fallbacks=codec.fallbacks)
    expected = VideoDecoder(stream, size=(224, 224)).get_frames_at(wanted).data
    off = [int((found[i].cpu().int() - torch.from_numpy(expected[i]).int()).abs().max()) for i in wanted]
    figures.add(frames=len(off), same=off.count(0), most_off=max(off))


def rates(figures: Figures, name: str) -> None:
    """Decode several requests for all frames at once, on NVDEC and on cores: frames a second of all together."""
    stream = analyse_bitstream(machine.carried_clip(name))
    size = {"width": stream.width, "height": stream.height, "frames": stream.num_frames}
    figures.add(clip=size, rates={kind: _rates(stream, kind) for kind in ("gpu", "cpu")})


def _rates(stream: Bitstream, kind: Any) -> dict[int, float]:
    found = {}
    with FlashCodec(device="cuda") as codec:
        _decoded(codec, stream, [0], kind)
        for count in AT_ONCE:
            start = time.perf_counter()
            for _ in range(count):
                codec.add_decoding_request(stream, range(stream.num_frames), LAYOUT, decode_on=kind)
            _take(codec, count)
            found[count] = count * stream.num_frames / (time.perf_counter() - start)
    return found


def _decoded(codec: FlashCodec, stream: Bitstream, wanted: list[int], kind: Any = "gpu") -> dict[int, Tensor]:
    codec.add_decoding_request(stream, wanted, LAYOUT, decode_on=kind)
    return _take(codec, 1)


def _take(codec: FlashCodec, requests: int) -> dict[int, Tensor]:
    """Return the frames of requests, by their place, once all are done."""
    found = {}
    while requests:
        output = codec.get_decoding_output()
        if output is None:
            continue
        if output.error is not None:
            raise output.error
        found[output.first] = torch.from_dlpack(output.gpu_data)[0]
        requests -= output.done
    return found
