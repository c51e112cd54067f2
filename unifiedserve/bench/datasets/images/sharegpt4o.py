"""Read ShareGPT-4o: long descriptions of images.

Layout: the hub's OpenGVLab/ShareGPT-4o, whose images once unpacked to folders named as on its makers' machine.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.images.conversation import conversation
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import line_rows
from unifiedserve.bench.datasets.sample import Sample, Unusable

_FOLDERS = ("images", "mnt/petrelfs/wangwenhai/workspace_cef/4o/image", "image")


class _Message(msgspec.Struct, rename={"sender": "from"}):
    sender: str
    value: str


class _Row(msgspec.Struct):
    image: str
    conversations: list[_Message]


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    folder = next((root / name for name in _FOLDERS if (root / name).is_dir()), root / _FOLDERS[0])
    for path in annotations:
        for number, (where, row) in enumerate(line_rows(path, _Row), 1):
            said = [message.value for message in row.conversations if message.sender == "human"]
            answers = [message.value for message in row.conversations if message.sender == "gpt"]
            yield conversation(str(number), where, said, answers, [str(folder / row.image)])


SHAREGPT_4O = Loader(
    annotations=("image_conversations/gpt-4o.jsonl",),
    layout="image_conversations/gpt-4o.jsonl and images/<image>",
    read=_read,
)
