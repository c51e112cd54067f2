"""Whether frames are the right ones, whatever resized them.

Pictures are compared at 128x128 in grey with FFmpeg's own decoding of the whole file. A picture x is taken for frame i
if it lies nearer to i's reference r_i than to any neighbour's r_j: on the line from r_i to r_j, x's projection is
before the middle. What a resizer does to sharpness is about at right angles to that line, what motion does is along
it. Neighbours that can hardly be told apart (a still scene) count as the same frame.
"""

import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

SIDE = 128
NEIGHBOURS = 6  # frames before and after
SAME = 1.5  # root mean squared difference, in steps of 255, below which two pictures count as the same
DAMAGED = 16.0  # the same above which a picture is damaged or another one; so is one far above the contestant's others

Floats = npt.NDArray[np.float32]


def area_weights(length: int) -> Floats:
    """Return rows float32 [128, length] that average an axis of this length down to 128, by overlap."""
    edges = np.linspace(0, length, SIDE + 1)
    pixels = np.arange(length)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.asarray(overlap.clip(0) / (length / SIDE), np.float32)


def shrunk(pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Shrink to uint8 [n, 128, 128] of luma the RGB pictures [n, height, width, 3]."""
    down, across = area_weights(pictures.shape[1]), area_weights(pictures.shape[2]).T
    luma = np.array([0.299, 0.587, 0.114], np.float32)
    small = np.empty((len(pictures), SIDE, SIDE), np.uint8)
    for number, picture in enumerate(pictures):
        small[number] = np.rint(down @ (picture @ luma) @ across)
    return small


def reference(path: Path, folder: Path) -> npt.NDArray[np.uint8]:
    """Return all frames as FFmpeg's command line decodes them, uint8 [frames, 128, 128]; `folder` keeps them."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{path.parent.name}.{path.name}.{path.stat().st_size}.gray"
    if not kept.exists():
        partial = kept.with_suffix(".partial")
        scale = ["-vf", f"scale={SIDE}:{SIDE}:flags=area,format=gray", "-fps_mode", "passthrough"]
        command = ["ffmpeg", "-v", "error", "-y", "-i", str(path), "-map", "0:v:0", *scale, "-f", "rawvideo"]
        subprocess.run([*command, str(partial)], check=True)
        partial.replace(kept)
    return np.memmap(kept, np.uint8, "r").reshape(-1, SIDE, SIDE)


def wrong_frames(
    pictures: npt.NDArray[np.uint8], indices: npt.NDArray[np.int64], references: npt.NDArray[np.uint8]
) -> int:
    """Count the pictures [n, 128, 128] that are not the frames of these indices; all if their number is not n."""
    if len(pictures) != len(indices):
        return len(indices)
    pairs = zip(pictures, indices.tolist(), strict=True)
    errors = [error_of(picture.astype(np.float32), index, references) for picture, index in pairs]
    return sum(error > min(DAMAGED, 1 + 1.5 * float(np.median(errors))) for error in errors)


def error_of(picture: Floats, index: int, references: npt.NDArray[np.uint8]) -> float:
    """Return the root mean squared difference to the frame of this index; infinite if a neighbour is nearer."""
    expected = references[index].astype(np.float32)
    near = references[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1].astype(np.float32)
    error = levelled(picture, expected) - expected
    steps = near - expected
    lengths = np.square(steps).mean(axis=(1, 2))
    along = (error * steps).mean(axis=(1, 2))
    if ((along > lengths / 2) & (lengths > SAME**2)).any():
        return float("inf")
    return float(np.sqrt(np.square(error).mean()))


def levelled(picture: Floats, expected: Floats) -> Floats:
    """Give the picture the expected one's brightness and contrast: matrices and ranges differ between decoders."""
    spread = float(picture.std())
    gain = float(((picture - picture.mean()) * (expected - expected.mean())).mean()) / max(spread**2, 1e-3)
    levelled: Floats = (picture - picture.mean()) * np.float32(np.clip(gain, 0.7, 1.4)) + expected.mean()
    return levelled
