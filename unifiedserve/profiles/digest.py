"""Tell models apart whose steps take different times."""

import hashlib
from pathlib import Path

_DIGITS = 16


def model_digest(model_dir: Path, *how: str) -> str:
    """Return the digest of a checkpoint's shapes, and of `how` it is loaded: dtypes, quantization.

    Raises OSError without its config.json.
    """
    parts = [(model_dir / "config.json").read_bytes(), *(each.encode() for each in how)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:_DIGITS]
