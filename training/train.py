"""Train the bundled model from scratch.

    python -m training.train DIRECTORY

Interrupt it as you like: the same command goes on from the last saved state.
"""

import argparse
import shutil
from pathlib import Path

import torch

from training.recipe.loop import Options, Trainer


def main() -> None:
    """Read the options and train."""
    defaults = Options()
    parser = argparse.ArgumentParser(prog="python -m training.train", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path, help="where the checkpoint and the curves go")
    parser.add_argument("--steps", type=int, default=defaults.steps, help="length of the whole run (%(default)s)")
    parser.add_argument("--minutes", type=float, help="save and end after so many; the next run goes on from there")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=defaults.workers, help="processes that draw (%(default)s)")
    parser.add_argument("--plain", action="store_true", help="do not compile (needs no C++ compiler)")
    given = parser.parse_args()
    if shutil.which("ffmpeg") is None:
        parser.error("some clips go through video files: install the command ffmpeg, with libx264 and libx265")
    given.directory.mkdir(parents=True, exist_ok=True)
    options = Options(
        steps=given.steps,
        minutes=given.minutes,
        seed=given.seed,
        device=given.device,
        workers=given.workers,
        fast=not given.plain,
    )
    Trainer(given.directory, options).run()


if __name__ == "__main__":
    main()
