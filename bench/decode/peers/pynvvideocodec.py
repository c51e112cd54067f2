"""PyNvVideoCodec's decoder for frames by index, with torch's resize on the GPU: [n, height, width, 3]."""

from typing import Any

import numpy as np
import PyNvVideoCodec
import torch

from peers.sharing import Indices, Size
from peers.torch_resize import resized


def frames(path: str, indices: Indices, size: Size, threads: int) -> Any:
    wanted, places = np.unique(indices, return_inverse=True)  # it gives each frame once
    decoder = PyNvVideoCodec.SimpleDecoder(
        path, gpu_id=0, use_device_memory=True, output_color_type=PyNvVideoCodec.OutputColorType.RGB
    )
    pictures = [
        torch.from_dlpack(frame).clone()  # its memory is the decoder's
        for first in range(0, len(wanted), 8)
        for frame in decoder.get_batch_frames_by_index(wanted[first : first + 8].tolist())
    ]
    stacked = torch.stack(pictures).permute(0, 3, 1, 2)
    return resized(stacked[torch.from_numpy(places).to("cuda")], size)
