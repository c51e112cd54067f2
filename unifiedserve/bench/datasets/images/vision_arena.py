"""Read VisionArena: what people asked models about their own images, in one turn or several.

Layout: the hub's lmarena-ai/VisionArena-Chat and lmarena-ai/vision-arena-bench-v0.1, Parquet files with the images in
them. Servers are given files, so the images are unpacked beside them, once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.images.conversation import conversation
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import parquet_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.errors import ConfigError

_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif", b"RIFF": ".webp"}


class _Message(msgspec.Struct):
    content: str
    role: str = "user"  # the benchmark's turns have none: all are the user's


class _Image(msgspec.Struct):
    bytes: bytes


class _Row(msgspec.Struct):
    images: list[_Image]
    conversation: list[list[_Message]] = []  # VisionArena-Chat's
    turns: list[list[_Message]] = []  # vision-arena-bench's


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    for path in annotations:
        for number, (where, row) in enumerate(parquet_rows(path, _Row), 1):
            messages = [message for turn in row.conversation or row.turns for message in turn]
            said = [message.content for message in messages if message.role == "user"]
            answers = [message.content for message in messages if message.role == "assistant"]
            images = [_unpacked(root / "unpacked", image.bytes) for image in row.images]
            yield conversation(f"{path.stem}/{number}", where, said, answers, images)


def _unpacked(folder: Path, image: bytes) -> str:
    """Return the path of the file with these bytes, which is named by them."""
    suffix = next((suffix for magic, suffix in _SUFFIXES.items() if image.startswith(magic)), ".jpg")
    path = folder / f"{hashlib.sha256(image).hexdigest()[:32]}{suffix}"
    try:
        if not path.exists() or path.stat().st_size != len(image):
            folder.mkdir(exist_ok=True)
            path.write_bytes(image)
    except OSError as error:
        raise ConfigError(f"{path}: the images cannot be unpacked there: {error.strerror}") from error
    return str(path)


VISION_ARENA = Loader(
    annotations=("data/*.parquet",),
    layout="data/*.parquet, from which images are written to unpacked/",
    read=_read,
)
