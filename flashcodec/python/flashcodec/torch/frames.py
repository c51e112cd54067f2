"""Hold frames as tensors."""

import torch

from flashcodec.frames import FrameBatchOf, FrameOf


class Frame(FrameOf[torch.Tensor]):
    __doc__ = FrameOf.__doc__


class FrameBatch(FrameBatchOf[torch.Tensor]):
    __doc__ = FrameBatchOf.__doc__
