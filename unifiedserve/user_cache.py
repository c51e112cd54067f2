"""Locate the user's cache folder."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for what can be made again, which may not exist yet.

    None can exist for a user without a home: nothing is kept then.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unifiedserve"
    except RuntimeError:
        return Path(os.devnull) / "unifiedserve"


def weights_folder() -> Path:
    """Return the folder for weights in panels and codes, which may not exist yet."""
    return cache_folder() / "weights"
