"""Decode with outputs on a GPU, in a process of its own; prints what came out as JSON.

gpu_process.py FILE DEVICE[,DEVICE] FRAME... [--decode-on KIND]
"""

import argparse
import ctypes
import gc
import hashlib
import json
from typing import Any

import numpy as np

import flashcodec

VERSIONED = b"dltensor_versioned"
DATA_OFFSET = 32  # of DLManagedTensorVersioned's tensor: version, manager_ctx, deleter, flags


def bytes_of(array: Any) -> bytes:
    """Return the bytes of an array on a GPU whose memory is the host's, as that of the stand-in is."""
    capsule = array.__dlpack__(max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    data = ctypes.c_void_p.from_address(pointer(capsule, VERSIONED) + DATA_OFFSET).value
    assert data is not None
    return ctypes.string_at(data, int(np.prod(array.shape)))


def decode(path: str, device: str, frames: list[int], decode_on: Any) -> dict[str, Any]:
    """Decode frames; return the MD5 of each, where they are, who was to decode them, who did and how many segments fell
    back to cores.
    """
    found: dict[int, str] = {}
    places, decoded_on = set(), set()
    layout = flashcodec.RGBLayout(48, 64)
    with flashcodec.FlashCodec(num_threads=2, device=device.split(",") if "," in device else device) as codec:
        chosen = [kind.name for kind in codec.estimate(path, frames, decode_on=decode_on) if kind.chosen]
        codec.add_decoding_request(path, frames, layout, decode_on=decode_on)
        done = False
        while not done:
            output = codec.get_decoding_output(60)
            assert output is not None
            if output.error is not None:
                raise output.error
            assert output.data is None
            assert output.gpu_data is not None
            places.add(output.gpu_data.__dlpack_device__())
            decoded_on.add(output.decoded_on)
            found[output.first] = hashlib.md5(bytes_of(output.gpu_data)).hexdigest()
            done = output.done
        fallbacks = codec.fallbacks
    return {
        "frames": [found[i] for i in sorted(found)],
        "places": sorted(places),
        "fallbacks": fallbacks,
        "chosen": chosen,
        "decoded_on": sorted(decoded_on),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("device")
    parser.add_argument("frames", type=int, nargs="+")
    parser.add_argument("--decode-on", default="fastest")
    given = parser.parse_args()
    try:
        found = decode(given.path, given.device, given.frames, given.decode_on)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    gc.collect()
    live = getattr(ctypes.CDLL("libcuda.so.1"), "fake_cuda_live", None) if "frames" in found else None
    print(json.dumps(found | {"live": live() if live else None}))


if __name__ == "__main__":
    main()
