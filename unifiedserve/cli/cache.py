"""Show the contents of the user's cache folder, and clear the weights in it."""

import shutil
from pathlib import Path

from rich.console import Console

from unifiedserve.config import MIB
from unifiedserve.user_cache import cache_folder, weights_folder


def run(console: Console, *, clear: bool) -> None:
    """Print how much is kept; remove the weights if they are to be cleared. Raises OSError if that cannot be."""
    if clear and weights_folder().exists():
        shutil.rmtree(weights_folder())
    console.print(f"{cache_folder()}:")
    for each in sorted(cache_folder().iterdir()) if cache_folder().exists() else ():
        console.print(f"{_bytes(each) / MIB:10,.1f} MiB  {each.name}")


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
