"""TorchCodec on NVDEC, its newer backend, with torch's resize on the GPU: [n, height, width, 3]."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import numpy as np
import torch

from peers.sharing import Indices, Size
from peers.torch_resize import resized

_decoders: Any = import_module("torchcodec.decoders")
_ENGINES = 7  # decoders that `split` uses: as many as the largest GPU has units


def frames(path: str, indices: Indices, size: Size, threads: int) -> Any:
    with _decoders.set_cuda_backend("beta"):
        decoder = _decoders.VideoDecoder(path, device="cuda", dimension_order="NCHW")
    data = decoder.get_frames_at(indices.tolist()).data
    return resized(data, size)


def split(path: str, indices: Indices, size: Size, threads: int) -> Any:
    """Read with several decoders at once, each with a contiguous share of the sorted indices."""
    order = np.argsort(indices, kind="stable")
    shares = [share for share in np.array_split(order, _ENGINES) if len(share)]
    with ThreadPoolExecutor(len(shares)) as pool:
        parts = list(pool.map(lambda share: frames(path, indices[share], size, 1), shares))
    out = torch.empty((len(indices), *parts[0].shape[1:]), dtype=torch.uint8, device="cuda")
    for share, part in zip(shares, parts, strict=True):
        out[torch.from_numpy(share).to("cuda")] = part
    torch.cuda.synchronize()
    return out


def patches(path: str, indices: Indices, size: tuple[int, int], threads: int) -> Any:
    """Return what transformers' video processor for Qwen2.5-VL makes of the frames on the GPU."""
    from peers.torchcodec_patches import of_frames

    with _decoders.set_cuda_backend("beta"):
        decoder = _decoders.VideoDecoder(path, device="cuda")
    found = of_frames(decoder.get_frames_at(indices.tolist()).data)
    torch.cuda.synchronize()
    return found
