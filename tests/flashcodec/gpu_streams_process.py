"""Decode while the default stream of a GPU that is a stand-in has work to do, in a process of its own; prints as JSON
whether FlashCodec waited for it, and whether an output that this work still reads kept its bytes.

gpu_streams_process.py VIDEO DECODE_ON
"""

import argparse
import ctypes
import gc
import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

from flashcodec.image import GpuImages
from gpu_process import address_of, bytes_of
from PIL import Image

import flashcodec

LAYOUT = flashcodec.RGBLayout(48, 64)
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DefaultStream:
    """The stream on which most of what other libraries do runs."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert self._driver.cuInit(0) == 0
        assert self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self._driver.cuCtxSetCurrent(context) == 0
        self._functions: list[Any] = []

    def give(self, work: Callable[[], None]) -> None:
        function = HostFunction(lambda _: work())
        self._functions.append(function)
        assert self._driver.cuLaunchHostFunc(None, function, None) == 0

    def wait(self) -> None:
        assert self._driver.cuStreamSynchronize(None) == 0


def frames(codec: flashcodec.FlashCodec, video: str, numbers: list[int], decode_on: Any) -> list[Any]:
    """Decode frames one after the other."""
    found = []
    for number in numbers:
        codec.add_decoding_request(video, [number], LAYOUT, decode_on=decode_on)
        output = codec.get_decoding_output(60)
        assert output is not None
        assert output.gpu_data is not None, output.error
        found.append(hashlib.md5(bytes_of(output.gpu_data)).hexdigest())
    return found


def decode_an_image(images: GpuImages) -> None:
    jpeg = io.BytesIO()
    Image.new("RGB", (64, 48)).save(jpeg, "JPEG")
    assert images.image_in_layout(jpeg.getvalue(), LAYOUT) is not None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("video")
    parser.add_argument("decode_on")
    given = parser.parse_args()
    stream, images, read = DefaultStream(), GpuImages(), []
    with flashcodec.FlashCodec(num_threads=1, device="cuda") as codec:
        codec.add_decoding_request(given.video, [0], LAYOUT, decode_on=given.decode_on)
        output = codec.get_decoding_output(60)
        assert output is not None
        address, size = address_of(output.gpu_data), len(bytes_of(output.gpu_data))
        expected = hashlib.md5(bytes_of(output.gpu_data)).hexdigest()
        stream.give(lambda: read.append(hashlib.md5(ctypes.string_at(address, size)).hexdigest()))
        del output
        gc.collect()
        others = frames(codec, given.video, [30, 60, 90], given.decode_on)
        decode_an_image(images)
        waited = bool(read)
        stream.wait()
    print(json.dumps({"waited": waited, "kept": read == [expected], "others": others}))


if __name__ == "__main__":
    main()
