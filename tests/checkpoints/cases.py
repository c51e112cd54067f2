"""Conversations that every model is asked, and the pictures in them."""

from typing import Any

import numpy as np
from reference import Case, Frames


def pixels(seed: int, *shape: int) -> Frames:
    """Smooth colours with some grain: neither constant, nor noise that a resize averages away."""
    random = np.random.default_rng(seed)
    rows = np.linspace(0, random.uniform(2, 9), shape[-2])[:, None, None]
    columns = np.linspace(0, random.uniform(2, 9), shape[-1])[None, :, None]
    wave = np.sin(rows + random.uniform(0, 6, 3)) * np.cos(columns + random.uniform(0, 6, 3)) * 100 + 128
    shift = np.arange(shape[0] if len(shape) == 3 else 1)[:, None, None, None] * 3
    frames = (wave + shift + random.normal(0, 8, (len(shift), *wave.shape))).clip(0, 255).astype(np.uint8)
    return frames if len(shape) == 3 else frames[0]


def user(*parts: str) -> dict[str, Any]:
    kinds = ("image", "video")
    return {
        "role": "user",
        "content": [{"type": part} if part in kinds else {"type": "text", "text": part} for part in parts],
    }


def turns(*again: str) -> list[dict[str, Any]]:
    """A conversation about one image, and then what follows."""
    return [
        {"role": "system", "content": "Be brief."},
        user("image", "What is this?"),
        {"role": "assistant", "content": "A house by the sea."},
        user("And this?", *again),
    ]


COMMON = {
    "text": Case([user("What is a river?")]),
    "image": Case([user("image", "What is this?")], [pixels(1, 150, 200)]),
    "3 images": Case(
        [user("image", "and", "image", "image", "Compare.")],
        [pixels(2, 100, 300), pixels(3, 224, 224), pixels(4, 333, 77)],
    ),
}
