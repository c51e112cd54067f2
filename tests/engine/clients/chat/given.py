"""What the Python programs are given: the daemon, media whose contents are known, and a tool with references."""

import base64
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

URL, MODEL, SAMPLES = sys.argv[1], sys.argv[2], Path(sys.argv[3])
KEY = "none"

PICTURE = SAMPLES / "shapes.jpg"
PICTURE_QUESTION = "Tell me the color of the triangle."
CLIP = SAMPLES / "shapes-motion.mp4"
CLIP_QUESTION = "Tell me the color of the star."
PICTURE_ANSWER, CLIP_ANSWER = "red", "white"

THINK = {"chat_template_kwargs": {"enable_thinking": True}}


def data_url(file: Path) -> str:
    """Return a file as a `data:` URL."""
    kind = "image/jpeg" if file.suffix == ".jpg" else "video/mp4"
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int = Field(ge=0, le=9)
    y: int = Field(ge=0, le=9)


class Drawing(BaseModel):
    """A shape to draw, whose corners are of a type of their own: its schema has `$defs`."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "blue"]
    corners: list[Point] = Field(min_length=1, max_length=2)


class Branch(BaseModel):
    """A branch that has branches: its schema refers to itself."""

    model_config = ConfigDict(extra="forbid")
    leaves: int = Field(ge=0, le=9)
    branches: list["Branch"] = Field(max_length=1)
