"""Say what a model has seen of images and videos, in words."""

from typing import Any


def seen_lines(media: list[dict[str, Any]]) -> list[str]:
    """Return a line a medium; `media` is `usage.media` of an answer."""
    return [_line(medium) for medium in media]


def _line(medium: dict[str, Any]) -> str:
    pictures = " and ".join(map(_picture, medium["pictures"]))
    size = f"{medium['width']}x{medium['height']}"
    if medium["kind"] == "image":
        return f"seen: the image of {size} as {pictures}, {medium['tokens']} tokens"
    times = ", ".join(f"{seconds:g}" for seconds in medium["seconds"])
    frames = f"{medium['frames']} frame{'s' if medium['frames'] > 1 else ''} of {size} as {pictures}"
    packets = medium["packets"]
    decoded = f", {packets['decode']} of {packets['total']} packets decoded" if packets else ""
    return f"seen: {frames}, {medium['tokens']} tokens{decoded}, at {times} s"


def _picture(picture: dict[str, Any]) -> str:
    size = f"{picture['width']}x{picture['height']}"
    return f"{picture['count']} of {size}" if picture["count"] > 1 else size
