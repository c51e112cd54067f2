"""transformers' image and video processors with what makes pixels comparable: no rescaling, no normalisation.

They need torchvision, whose builds for other torches import once two operator schemas are there.
"""

import contextlib
import importlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="transformers' processors work on its tensors")


def processor(name: str, **options: Any) -> Any:
    """An instance of transformers.<name>."""
    pytest.importorskip("transformers", reason="transformers is the reference")
    import_torchvision()
    return getattr(importlib.import_module("transformers"), name)(do_rescale=False, do_normalize=False, **options)


def image_outputs(hf: Any, rgb: npt.NDArray[np.uint8]) -> Any:
    return hf(images=[torch.from_numpy(rgb).permute(2, 0, 1).contiguous()], return_tensors="pt")


def video_outputs(hf: Any, rgb: npt.NDArray[np.uint8]) -> Any:
    """Of a video of one frame."""
    video = torch.from_numpy(rgb).permute(2, 0, 1).contiguous()[None]
    return hf(videos=[video], return_tensors="pt", do_sample_frames=False)


def as_bytes(pixels: Any) -> npt.NDArray[np.uint8]:
    values = pixels.numpy()
    whole: npt.NDArray[np.uint8] = values.astype(np.uint8)
    np.testing.assert_array_equal(whole, values, "the processor's pixels are no bytes")
    return whole


def import_torchvision() -> None:
    if "torchvision" in sys.modules:
        return
    for operator in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # another test has defined it
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
    pytest.importorskip("torchvision", reason="transformers' processors need torchvision")
