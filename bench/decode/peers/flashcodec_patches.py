"""A file to the rows that Qwen2.5-VL's vision tower reads, by FlashCodec."""

import numpy as np
import numpy.typing as npt

import flashcodec
from peers.sharing import Indices

# transformers' OPENAI_CLIP_MEAN and OPENAI_CLIP_STD, which Qwen2.5-VL's checkpoints name
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
ROW = 2 * 14 * 14  # values of one colour in a row


def patches(path: str, indices: Indices, size: tuple[int, int], threads: int) -> npt.NDArray[np.float32]:
    """Return normalised patches float32 [rows, 1176]."""
    layout = flashcodec.PatchLayout(*size)
    groups = -(-len(indices) // layout.group_frames)
    out = np.empty((groups * layout.rows_per_group, layout.row_bytes), np.float32)
    scale = np.repeat(1 / (255 * np.array(STD)), ROW).astype(np.float32)
    shift = np.repeat(np.array(MEAN) / np.array(STD), ROW).astype(np.float32)
    codec = flashcodec.FlashCodec()
    codec.add_decoding_request(path, indices, layout)
    done = False
    while not done:
        output = codec.get_decoding_output()
        assert output is not None
        if output.error is not None:
            raise output.error
        assert output.data is not None
        rows = out[output.first_group * layout.rows_per_group :][: len(output.data)]
        np.multiply(output.data, scale, out=rows)
        rows -= shift
        done = output.done
    return out
