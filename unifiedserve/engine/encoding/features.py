"""Describe this engine's visual tokens, for others to compare."""

from pathlib import Path

from unifiedserve import __version__
from unifiedserve.messages.encoding import Features
from unifiedserve.profiles.digest import model_digest


def features_of(model_dir: Path, dtype: str, width: int, page_tokens: int) -> Features:
    """Return the features of a checkpoint whose visual tokens have `width` numbers of this dtype."""
    return Features(model_digest(model_dir), __version__, dtype, width, page_tokens)
