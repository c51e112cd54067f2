"""Conversations that all families are asked, as their workers get them."""

import flashcodec._core
import numpy as np
import torch
from builders import Loaded
from cases import COMMON, pixels, turns, user
from model_loop import Request, plans
from reference import Case, Frames

from unifiedserve.messages.layouts import Views
from unifiedserve.messages.media import MediaPlan
from unifiedserve.worker.vision.views import cut_views

TOKENS = 24
CASES = {
    **COMMON,
    "video": Case([user("Look:", "video", "What happens?")], videos=[pixels(5, 8, 90, 160)]),
    "image and video": Case(
        [user("image", "video", "Is the image in the video?")], [pixels(8, 180, 120)], [pixels(9, 5, 100, 140)]
    ),
    "two turns": Case(turns("image"), [pixels(10, 90, 90), pixels(11, 140, 60)]),
}


def cases(loaded: Loaded) -> dict[str, Case]:
    """Those whose media the family takes, and transformers together."""
    kinds = {name: {"image"} if case.images else set() for name, case in CASES.items()}
    for name, case in CASES.items():
        kinds[name] |= {"video"} if case.videos else set()
    most = 2 if loaded.mixed else 1
    return {name: case for name, case in CASES.items() if kinds[name] <= loaded.media and len(kinds[name]) <= most}


def rows(plan: MediaPlan, frames: Frames, row_bytes: int) -> torch.Tensor:
    """What the vision stage would write of frames [T, H, W, 3] for a plan."""
    layout = plan.layout
    step = layout.group_frames
    padded = np.concatenate([frames, frames[-1:].repeat(-len(frames) % step, 0)])
    laid_out = [flashcodec._core.lay_out(frame, layout.to_core()) for frame in padded]
    if isinstance(layout, Views):
        laid_out = [cut_views(torch.from_numpy(frame), layout).numpy() for frame in laid_out]
    laid_out = [frame.reshape(-1, row_bytes) for frame in laid_out]
    groups = []
    for start in range(0, len(padded), step):
        # each frame was laid out as a whole group of itself: [rows, 3, step, pixels]
        group = np.stack(laid_out[start : start + step]).reshape(step, len(laid_out[0]), 3, step, -1)
        groups.append(np.stack([group[t, :, :, t] for t in range(step)], axis=2).reshape(-1, row_bytes))
    return torch.from_numpy(np.concatenate(groups))


def prepare(loaded: Loaded, case: Case) -> Request:
    media = plans(loaded.ours, case)
    images, videos = iter(case.images), iter(case.videos)
    patches = [torch.empty(0, loaded.ours.patch_row_bytes, dtype=torch.uint8)]
    for plan in media:
        frames = next(images)[None] if plan.kind == "image" else next(videos)
        patches.append(rows(plan, frames, loaded.ours.patch_row_bytes))
        assert len(patches[-1]) == plan.patches
    return Request(loaded.ours.prompt(case.messages, media), torch.cat(patches))
