"""Define the forms in which decoded frames are handed out."""

from flashcodec.layouts.base import Frame, Interpolation, Layout, join_parts
from flashcodec.layouts.deep import DeepLayout
from flashcodec.layouts.patches import PatchLayout
from flashcodec.layouts.rgb import Color, RGBLayout
from flashcodec.layouts.tiles import TileLayout

__all__ = [
    "Color",
    "DeepLayout",
    "Frame",
    "Interpolation",
    "Layout",
    "PatchLayout",
    "RGBLayout",
    "TileLayout",
    "join_parts",
]
