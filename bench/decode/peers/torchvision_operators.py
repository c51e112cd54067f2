"""Lets a torchvision that was built for another torch be imported: it asks for two operators that nobody here calls."""

import contextlib

import torch


def define() -> None:
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # they are there
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
