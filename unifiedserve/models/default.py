"""Locate the model that is served when none is named: it comes with the package."""

from pathlib import Path

import unifiedserve

DEFAULT_MODEL = "shapes-4m"
DEFAULT_CHECKPOINT = Path(unifiedserve.__file__).parent / "bundled_model"
