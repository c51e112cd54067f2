"""Install the other decoders, each alone in a folder: their FFmpegs and module names do not get along.

python bench/decode/install_peers.py               # from the package index, into build/peers
python bench/decode/install_peers.py --wheels DIR  # from wheels that are there already
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from peers import CONTESTANTS, FLOOR, FOLDER, ON_GPU, folder_of
from rich.console import Console


def main(
    folder: Annotated[Path, typer.Option(help="Where they go")] = FOLDER,
    wheels: Annotated[Path | None, typer.Option(help="Take them from this folder instead of the package index")] = None,
) -> None:
    """Install what is not there yet. What cannot be installed here is said and left out."""
    console = Console(stderr=True)
    packages = dict.fromkeys(contestant.package for contestant in (FLOOR, *CONTESTANTS.values(), *ON_GPU.values()))
    for package in filter(None, packages):
        target = folder_of(package, folder)
        if target.exists():
            continue
        source = [] if wheels is None else ["--no-index", "--find-links", str(wheels)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        result = subprocess.run([*pip, *source, "--target", str(target), package], capture_output=True, text=True)
        if result.returncode == 0:
            console.print(f"{package}: installed")
        else:
            console.print(f"{package}: left out: {result.stderr.strip().splitlines()[-1]}")


if __name__ == "__main__":
    typer.run(main)
