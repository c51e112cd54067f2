"""Questions that a server in order answers."""

import io
from random import Random
from typing import Any

from PIL import Image

from bench.campaign.asking import CHAT, Request, asks, chat
from bench.campaign.parts.media_files import Medium, question


def text() -> Request:
    """Return a question without media, which must be answered."""
    return asks(CHAT, chat(), 200)


def image(random: Random, **fields: Any) -> Request:
    """Return a question about a small image that no cache knows, which must be answered."""
    picture = Image.frombytes("RGB", (32, 32), random.randbytes(32 * 32 * 3))
    return asks(CHAT, question(encoded(picture, "PNG"), **fields), 200)


def encoded(picture: Image.Image, file_format: str, **options: Any) -> Medium:
    """Return a picture as a file of this format."""
    data = io.BytesIO()
    picture.save(data, file_format, **options)
    return Medium(data.getvalue(), "image")
