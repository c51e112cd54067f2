"""The model that is served when none is named: the tiny checkpoint, made once and kept in the user's cache."""

import os
import shutil
import tempfile
from pathlib import Path

from unifiedserve import __version__
from unifiedserve.models.tiny import make_checkpoint

DEFAULT_MODEL = "tiny-qwen2.5-vl"


def default_checkpoint() -> Path:
    """Its directory; made at the first call, in one piece even if several processes come at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unifiedserve"
    directory = cache / f"{DEFAULT_MODEL}-{__version__}"
    if directory.is_dir():
        return directory
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=cache))
    try:
        make_checkpoint(made)
        made.rename(directory)
    except OSError:  # another process was faster
        shutil.rmtree(made, ignore_errors=True)
        if not directory.is_dir():
            raise
    return directory
