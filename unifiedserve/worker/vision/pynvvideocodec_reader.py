"""Read frames by PyNvVideoCodec, on a GPU's NVDEC."""

from importlib import import_module
from pathlib import Path

import numpy as np
from torch.utils.dlpack import from_dlpack

from unifiedserve.messages.wire import MediaSource
from unifiedserve.reading.work import opened
from unifiedserve.worker.vision.other_videos import Frames, OtherDecoder, Read

_AT_ONCE = 8  # frames whose memory is the decoder's until they are copied


def pynvvideocodec(gpu: int) -> OtherDecoder:
    """Return the decoder on a GPU. Raises ImportError if the package PyNvVideoCodec is not there."""
    package = import_module("PyNvVideoCodec")

    def open_video(source: MediaSource) -> Read:
        found = opened(source.where)
        decoder = package.SimpleDecoder(
            str(found) if isinstance(found, Path) else bytes(found),
            gpu_id=gpu,
            use_device_memory=True,
            output_color_type=package.OutputColorType.RGB,
        )

        def read(frames: list[int]) -> Frames:
            wanted, places = np.unique(frames, return_inverse=True)  # it gives each frame once
            if wanted[0] < 0 or wanted[-1] >= len(decoder):
                raise IndexError(f"no frame {wanted[0] if wanted[0] < 0 else wanted[-1]}: there are {len(decoder)}")
            pictures = [
                from_dlpack(picture).cpu().numpy()
                for first in range(0, len(wanted), _AT_ONCE)
                for picture in decoder.get_batch_frames_by_index(wanted[first : first + _AT_ONCE].tolist())
            ]
            return np.stack(pictures)[places]

        return read

    return OtherDecoder("PyNvVideoCodec", open_video)
