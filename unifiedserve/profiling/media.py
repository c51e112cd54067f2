"""Provide the image and the video that a server is measured with."""

import os
from pathlib import Path
from typing import NamedTuple

import flashcodec
from unifiedserve.errors import ConfigError
from unifiedserve.samples import FOLDER

IMAGE, VIDEO = FOLDER / "shapes.jpg", FOLDER / "telescope.mp4"


class Media(NamedTuple):
    """Name files of the server's kinds, and how long the video and its GOPs are (seconds)."""

    image: Path
    video: Path
    video_seconds: float
    gop_seconds: float

    @classmethod
    def of(cls, image: Path = IMAGE, video: Path = VIDEO) -> "Media":
        """Look at the files. Raises ConfigError if there is none, or the video cannot be read."""
        for path in (image, video):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file")
        try:
            seconds = flashcodec.VideoDecoder(video).metadata.duration_seconds
            gops = len(flashcodec.analyse_bitstream(video).gops)
        except (flashcodec.DecodeError, ValueError) as error:
            raise ConfigError(f"{video}: {error}") from error
        if not seconds:
            raise ConfigError(f"{video}: does not say how long it is")
        return cls(image.resolve(), video.resolve(), float(seconds), seconds / gops)

    @property
    def folder(self) -> str:
        """Return the folder below which a server must be allowed to read."""
        return os.path.commonpath([self.image.parent, self.video.parent])
