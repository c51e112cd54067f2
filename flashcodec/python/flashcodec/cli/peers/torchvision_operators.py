"""Register two operators that torchvision asks for when it was built for another torch. Nobody here calls them."""

from functools import cache
from importlib import import_module

import torch


@cache
def define() -> None:
    """Let a torchvision that was built for another torch be imported."""
    try:
        import_module("torchvision")
    except (ImportError, OSError):  # TorchCodec and the processors say so where they need it
        return
    except RuntimeError:  # operators are missing
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
