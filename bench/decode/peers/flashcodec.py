"""FlashCodec with its defaults: the engines that all decoders of the process share, one a core."""

import numpy as np

import flashcodec
from peers.sharing import Indices, Pixels, Size


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    if size is None:
        return flashcodec.VideoDecoder(path, dimension_order="NHWC").get_frames_at(indices).data
    out = np.empty((len(indices), *size, 3), np.uint8)
    codec = flashcodec.FlashCodec()
    codec.add_decoding_request(path, indices, flashcodec.RGBLayout(*size, order="NHWC"))
    done = False
    while not done:
        output = codec.get_decoding_output()
        assert output is not None
        if output.error is not None:
            raise output.error
        assert output.data is not None
        out[output.first : output.first + output.count] = output.data
        done = output.done
    return out


def snapped(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    return frames(path, nearest_key_frames(path, indices), size, threads)


def nearest_key_frames(path: str, indices: Indices) -> Indices:
    keys = flashcodec.analyse_bitstream(path).key_frames
    after = np.searchsorted(keys, indices).clip(0, len(keys) - 1)
    before = (after - 1).clip(0)
    return np.where(indices - keys[before] <= keys[after] - indices, keys[before], keys[after])
