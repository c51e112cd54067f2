"""NVDEC through FlashCodec: are the frames those of the cores, and how many come out a second."""

import io
import json
import os
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from flashcodec.image import GpuImages, image_in_layout
from PIL import Image
from torch import Tensor

from bench.gpu import machine
from bench.gpu.figures import Figures
from bench.gpu.mps_daemon import mps_daemon
from flashcodec import Bitstream, FlashCodec, PatchLayout, RGBLayout, VideoDecoder, analyse_bitstream

LAYOUT = RGBLayout(224, 224)
ROUNDS = 10
AT_ONCE = (1, 2, 4, 8, 16, 32)  # requests for all frames of the clip


def pictures(figures: Figures) -> None:
    """Lay pictures out by the GPU's threads and compare each with the cores' own."""
    torch.zeros(1, device="cuda")  # keeps the context, which each picture would make for itself
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
    figures.add(clip=size)
    for kind in ("gpu", "cpu"):
        for rates in _rates(stream, kind):
            figures.add(**{f"rates_{kind}": rates})


def engines(figures: Figures, name: str) -> None:
    """Decode all frames of one clip on 1 to all engines, and the clip by each engine for itself: frames a second."""
    stream = analyse_bitstream(machine.carried_clip(name))
    wanted = range(stream.num_frames)
    with FlashCodec(device="cuda") as codec:
        most = next(kind.engines for kind in codec.estimate(stream, [0], decode_on="gpu"))
    for count in sorted({1, 2, 4, most // 2, most}):
        with FlashCodec(count, device="cuda") as codec:
            _decoded(codec, stream, [0, stream.num_frames - 1])
            start = time.perf_counter()
            for _ in range(ROUNDS):
                _decoded(codec, stream, list(wanted))
            one = ROUNDS * stream.num_frames / (time.perf_counter() - start)
            start = time.perf_counter()
            for _ in range(ROUNDS * count):
                codec.add_decoding_request(stream, wanted, LAYOUT, decode_on="gpu")
            _take(codec, ROUNDS * count)
            many = ROUNDS * count * stream.num_frames / (time.perf_counter() - start)
            figures.add(**{f"{count} engines": {"one video": one, "many": many}})


def images(figures: Figures) -> None:
    """Decode a noisy JPEG to patches by the GPU's hardware for it and by a core: seconds, and how far they differ."""
    buffer = io.BytesIO()
    Image.effect_noise((1920, 1080), 40).convert("RGB").save(buffer, "JPEG", quality=90)
    jpeg, layout = buffer.getvalue(), PatchLayout(364, 644)
    hardware = GpuImages()
    found = hardware.image_in_layout(jpeg, layout)
    if found is None:
        raise RuntimeError("the hardware does not decode this JPEG")
    expected = torch.from_numpy(image_in_layout(jpeg, layout))
    apart = (torch.from_dlpack(found).cpu().int() - expected.int()).abs()
    start = time.perf_counter()
    for _ in range(ROUNDS):
        hardware.image_in_layout(jpeg, layout)
    middle = time.perf_counter()
    for _ in range(ROUNDS):
        image_in_layout(jpeg, layout)
    end = time.perf_counter()
    figures.add(gpu_s=(middle - start) / ROUNDS, core_s=(end - middle) / ROUNDS)
    figures.add(mean_apart=float(apart.float().mean()), most_apart=int(apart.max()))


def costs(figures: Figures, large: str, small: str) -> None:
    """Time a key frame: with a decoder that is made for it, with one that is there, and with one of another size."""
    streams = [analyse_bitstream(machine.carried_clip(name)) for name in (large, small)]
    with FlashCodec(device="cuda") as codec:
        first = _seconds(codec, streams[0])
        for _ in range(codec.num_engines):
            _seconds(codec, streams[0])  # each engine makes one
        again = [_seconds(codec, streams[0]) for _ in range(ROUNDS)]
        turns = [_seconds(codec, streams[i % 2]) for i in range(2 * ROUNDS)]
    figures.add(first_s=first, again_s=statistics.median(again), in_turn_s=statistics.median(turns))


def beside(figures: Figures, name: str) -> None:
    """Decode 64 frames of a clip, and all of them, with FlashCodec and other decoders in turn, each in its process."""
    sys.path.insert(0, str(machine.ROOT / "bench/decode"))
    from contestant import Task
    from measure import Contender
    from peers import ON_GPU

    path = machine.carried_clip(name)
    count = analyse_bitstream(path).num_frames
    tasks = {"uniform64": [i * count // 64 for i in range(64)], "every": list(range(count))}
    with tempfile.TemporaryDirectory() as installed:
        for archive in Path(os.environ[machine.CARRIED_VARIABLE], "peers").glob("*.zip"):
            shutil.unpack_archive(archive, Path(installed, archive.stem))
        for decoder, contestant in ON_GPU.items():
            contender = Contender(contestant, Path(installed), timeout=60)
            for task, indices in tasks.items():
                size = (224, 224) if task == "uniform64" else None
                work = Task("frames", contestant.function, [str(path)], [indices], size, 1, repeat=ROUNDS)
                result = contender.run(work) if contender.failure is None else None
                figures.add(**{f"{decoder}, {task}": result or contender.failure})
            contender.close()


def _seconds(codec: FlashCodec, stream: Bitstream) -> float:
    begin = time.perf_counter()
    _decoded(codec, stream, [0])
    return time.perf_counter() - begin


def rates_under_mps(figures: Figures, name: str) -> None:
    """Measure NVDEC's `rates` in a process that is a client of MPS."""
    with tempfile.TemporaryDirectory() as folder, mps_daemon(Path(folder)) as environment:
        code = f"from bench.gpu.items import nvdec; nvdec.print_rates({name!r})"
        with subprocess.Popen(
            [sys.executable, "-P", "-c", code], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout is not None
            for line in client.stdout:
                figures.add(rates=json.loads(line))
        if client.returncode != 0:
            raise RuntimeError(f"the client of MPS ended with code {client.returncode}: see its log")


def print_rates(name: str) -> None:
    """Print the frames a second of NVDEC so far as JSON, a line for each number of requests."""
    for rates in _rates(analyse_bitstream(machine.carried_clip(name)), "gpu"):
        print(json.dumps(rates), flush=True)


def _rates(stream: Bitstream, kind: Any) -> Iterator[dict[int, float]]:
    """Yield the frames a second by the number of requests at once, as soon as another one is measured."""
    found = {}
    with FlashCodec(device="cuda") as codec:
        for _ in range(2):  # all engines have decoders then
            _decoded(codec, stream, list(range(stream.num_frames)), kind)
        for count in AT_ONCE:
            start = time.perf_counter()
            for _ in range(count):
                codec.add_decoding_request(stream, range(stream.num_frames), LAYOUT, decode_on=kind)
            _take(codec, count)
            found[count] = count * stream.num_frames / (time.perf_counter() - start)
            yield found


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
