"""Feed a training loop with FlashCodec in a DataLoader: `python examples/train_on_clips.py [WORKERS]`."""

import sys
from pathlib import Path

import torch
from flashcodec.torch import VideoDecoder
from flashcodec.torch.transforms import RandomCrop, Resize
from torch.utils.data import DataLoader, Dataset

from unifiedserve.samples import FOLDER

WORKERS = int(sys.argv[1]) if len(sys.argv) > 1 else 2


class Videos(Dataset):
    """Eight frames of each video, evenly spaced, as uint8 [8, 3, 112, 112]."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> torch.Tensor:
        # Resize and crop are part of the pass that writes RGB; packets that no chosen frame needs are skipped.
        shaped = [Resize((128, 128)), RandomCrop((112, 112))]
        # A worker of the loader is a process: one thread of the decoder in each keeps the cores as busy as they can be.
        with VideoDecoder(self.files[number], transforms=shaped, num_ffmpeg_threads=1) as video:
            return video.get_frames_at(torch.linspace(0, len(video) - 1, 8).long()).data


if __name__ == "__main__":
    loader = DataLoader(Videos(sorted(FOLDER.glob("*.mp4"))), batch_size=2, num_workers=WORKERS)
    for batch in loader:
        print(tuple(batch.shape), batch.dtype, f"mean {batch.float().mean():.1f}")
