"""Try an installed wheel: the packages named are imported, and FlashCodec decodes frames of a sample."""

import sys
from importlib import import_module
from pathlib import Path

import flashcodec

CLIP = Path(__file__).resolve().parents[2] / "unifiedserve" / "samples" / "telescope.mp4"


def main(packages: list[str]) -> None:
    """Raise what is wrong with the wheel."""
    for package in packages:
        import_module(package)
    frames = flashcodec.sample(CLIP, num_frames=4, size=64).data
    if len(frames) != 4 or frames.min() == frames.max():
        raise SystemExit(f"{CLIP.name}: the frames are not those of a video")


main(sys.argv[1:])
