"""Images and videos for requests, and what TorchCodec decodes from them."""

import base64
import io
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Frames = npt.NDArray[np.uint8]
FPS = 8.0


@dataclass
class Clip:
    path: Path
    frames: Frames  # [T, H, W, 3], as TorchCodec decodes them

    @property
    def url(self) -> str:
        return data_url("video/mp4", self.path.read_bytes())


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def make_clip(path: Path, frames: int) -> None:
    """Encode moving test pictures in H.264 with B-frames and several GOPs."""
    source = f"testsrc2=size=160x120:rate={FPS}:duration={frames / FPS}"
    encode = ["-c:v", "libx264", "-g", "12", "-pix_fmt", "yuv420p"]
    subprocess.run(["ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", source, *encode, str(path)], check=True)


def read_clip(path: Path, frames: int) -> Clip:
    """Return a clip of so many frames as TorchCodec decodes it."""
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(str(path), dimension_order="NHWC")
    assert len(decoder) == frames
    return Clip(path, decoder[:].numpy())


def make_image(seed: int, height: int, width: int) -> Frames:
    random = np.random.default_rng(seed)
    rows = np.linspace(0, random.uniform(2, 9), height)[:, None, None]
    columns = np.linspace(0, random.uniform(2, 9), width)[None, :, None]
    wave = np.sin(rows + random.uniform(0, 6, 3)) * np.cos(columns + random.uniform(0, 6, 3)) * 100 + 128
    return (wave + random.normal(0, 8, wave.shape)).clip(0, 255).astype(np.uint8)


def image_part(pixels: Frames) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"type": "image_url", "image_url": {"url": data_url("image/png", file.getvalue())}}


def video_part(clip: Clip) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": clip.url}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
