"""Two operators that torchvision asks for when it was built for another torch; nobody here calls them."""

import contextlib
from functools import cache

import torch


@cache
def define() -> None:
    """Let a torchvision that was built for another torch be imported."""
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # they are there
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
