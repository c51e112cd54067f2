"""Locate the user's cache folder."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for what can be made again, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unifiedserve"


def weights_folder() -> Path:
    """Return the folder for weights in panels and codes, which may not exist yet."""
    return cache_folder() / "weights"
