"""Train the bundled model from scratch.

    python -m unifiedserve.demo.train DIRECTORY

Interrupt it as you like: the same command goes on from the last saved state.
"""

import argparse
from pathlib import Path

import torch

from unifiedserve.demo.training.loop import Options, Trainer


def main() -> None:
    """Read the options and train."""
    defaults = Options()
    parser = argparse.ArgumentParser(
        prog="python -m unifiedserve.demo.train", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("directory", type=Path, help="where the checkpoint and the curves go")
    parser.add_argument("--steps", type=int, default=defaults.steps, help="length of the whole run (%(default)s)")
    parser.add_argument("--stop-at", type=int, help="save and end at this step; later runs go on from there")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=defaults.workers, help="processes that draw (%(default)s)")
    parser.add_argument("--plain", action="store_true", help="do not compile (needs no C++ compiler)")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    options = Options(
        steps=given.steps,
        stop_at=given.stop_at,
        seed=given.seed,
        device=given.device,
        workers=given.workers,
        fast=not given.plain,
    )
    Trainer(given.directory, options).run()


if __name__ == "__main__":
    main()
