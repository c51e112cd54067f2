"""What LeRobot does with TorchCodec, with the import changed: a cache of decoders over files that fsspec opened."""

from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flashcodec_clips import ClipMaker

torch = pytest.importorskip("torch", reason="frames are its tensors")
fsspec = pytest.importorskip("fsspec", reason="LeRobot opens files with it")
torchcodec_decoders = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")

import flashcodec.torch.decoders as flashcodec_decoders  # noqa: E402

CLIPS = ["h264_bframes.mp4", "h264_one_gop.mp4", "av1_svt.mp4", "hevc_opengop.mp4", "vp9.webm"]
TOLERANCE = 1e-4  # LeRobot's, in seconds


class DecoderCache:
    """Decoders by path, the oldest closed when there are too many."""

    def __init__(self, decoders: ModuleType, capacity: int) -> None:
        self._kind: Any = decoders.VideoDecoder
        self._capacity = capacity
        self._open: OrderedDict[str, tuple[Any, Any]] = OrderedDict()

    def decoder(self, path: str) -> Any:
        if path not in self._open:
            file = fsspec.open(path).__enter__()
            self._open[path] = self._kind(file, seek_mode="approximate"), file
        self._open.move_to_end(path)
        while len(self._open) > self._capacity:
            _, (_, file) = self._open.popitem(last=False)
            file.close()
        return self._open[path][0]

    def close(self) -> None:
        for _, file in self._open.values():
            file.close()


def frames_at(cache: DecoderCache, path: Path, timestamps: list[float]) -> Any:
    """Return the frames nearest to these times, float32 [n, 3, height, width] from 0 to 1."""
    decoder = cache.decoder(str(path))
    rate = decoder.metadata.average_fps
    batch = decoder.get_frames_at(indices=[round(time * rate) for time in timestamps])
    loaded = [(frame, time.item()) for frame, time in zip(batch.data, batch.pts_seconds, strict=True)]
    distances = torch.cdist(torch.tensor(timestamps)[:, None], torch.tensor([time for _, time in loaded])[:, None], p=1)
    nearest, places = distances.min(1)
    assert (nearest <= TOLERANCE).all()
    return torch.stack([loaded[place][0] for place in places]).to(torch.float32) / 255


@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_torchcodecs(clip: ClipMaker, name: str) -> None:
    other = clip("rotated.mp4")
    ours, theirs = DecoderCache(flashcodec_decoders, 1), DecoderCache(torchcodec_decoders, 1)
    for timestamps in ([0.2, 0.24, 0.28], [0.8, 0.04, 0.4]):  # at 25 frames a second
        for path in (clip(name), other):  # which the cache has to close in between
            assert torch.equal(frames_at(ours, path, timestamps), frames_at(theirs, path, timestamps))
    ours.close()
    theirs.close()
