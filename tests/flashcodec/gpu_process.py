"""Decode with outputs on a GPU, in a process of its own; prints what came out as JSON.

gpu_process.py FILE[,FILE] DEVICE[,DEVICE] FRAME[,FRAME]... [--decode-on KIND] [--skip]

Each list of frames is a request of its own for each file.
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
CALLS = ("parser", "create", "reconfigure", "decode", "map")  # of the stand-in for libnvcuvid


def address_of(array: Any) -> int:
    """Return where an array lies."""
    capsule = array.__dlpack__(max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    data = ctypes.c_void_p.from_address(pointer(capsule, VERSIONED) + DATA_OFFSET).value
    assert data is not None
    return data


def bytes_of(array: Any) -> bytes:
    """Return the bytes of an array on a GPU whose memory is the host's, as that of the stand-in is."""
    return ctypes.string_at(address_of(array), int(np.prod(array.shape)))


def decode(codec: flashcodec.FlashCodec, path: str, frames: list[int], options: dict[str, Any]) -> dict[str, Any]:
    """Decode frames; return the MD5 of each or its error, where they are, who was to decode them and who did."""
    found: dict[int, str] = {}
    places, decoded_on = set(), set()
    chosen = [kind.name for kind in codec.estimate(path, frames, decode_on=options["decode_on"]) if kind.chosen]
    codec.add_decoding_request(path, frames, flashcodec.RGBLayout(48, 64), **options)
    done = False
    while not done:
        output = codec.get_decoding_output(60)
        assert output is not None
        done = output.done
        if output.error is not None:
            if options["on_error"] == "raise":
                raise output.error
            found[output.first] = "damaged"
            continue
        assert output.data is None
        assert output.gpu_data is not None
        places.add(output.gpu_data.__dlpack_device__())
        decoded_on.add(output.decoded_on)
        found[output.first] = hashlib.md5(bytes_of(output.gpu_data)).hexdigest()
    return {
        "frames": [found[i] for i in sorted(found)],
        "places": sorted(places),
        "chosen": chosen,
        "decoded_on": sorted(decoded_on),
    }


def decode_all(
    paths: list[str], device: Any, requests: list[list[int]], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Make the requests for each file, one after the other; return what came of those for the last file."""
    with flashcodec.FlashCodec(num_threads=2, device=device) as codec:
        for path in paths:
            found = [decode(codec, path, frames, options) for frames in requests]
        return [each | {"fallbacks": codec.fallbacks} for each in found]


def left_behind() -> dict[str, Any]:
    """Return what the stand-ins' callers have not given back, and how often they called."""
    gc.collect()
    cuda, cuvid = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvcuvid.so.1")
    if not hasattr(cuda, "fake_cuda_live"):
        return {}
    live = [cuda.fake_cuda_live(), cuvid.fake_cuvid_live()]
    calls = {call: cuvid.fake_cuvid_count(call.encode()) for call in CALLS}
    return {"live": live, "calls": calls, "behind_default": cuda.fake_cuda_streams_behind_default()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths")
    parser.add_argument("device")
    parser.add_argument("requests", nargs="+")
    parser.add_argument("--decode-on", default="fastest")
    parser.add_argument("--skip", action="store_true")
    given = parser.parse_args()
    device = given.device.split(",") if "," in given.device else given.device
    requests = [[int(frame) for frame in request.split(",")] for request in given.requests]
    options = {"decode_on": given.decode_on, "on_error": "skip" if given.skip else "raise"}
    try:
        found = decode_all(given.paths.split(","), device, requests, options)
    except Exception as error:
        found = [{"error": f"{type(error).__name__}: {error}"}]
    else:
        found = [each | left_behind() for each in found]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
