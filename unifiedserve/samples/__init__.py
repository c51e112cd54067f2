"""Provide clips and pictures, and questions about them for the bundled model."""

from pathlib import Path

import msgspec

import unifiedserve

FOLDER = Path(unifiedserve.__file__).parent / "samples"


def sample_questions() -> dict[str, list[str]]:
    """Read the questions about each file in FOLDER; the first file is the best one to begin with."""
    return msgspec.json.decode((FOLDER / "questions.json").read_bytes(), type=dict[str, list[str]])
