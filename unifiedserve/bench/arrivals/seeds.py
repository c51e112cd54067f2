"""Derive independent streams of random numbers from one seed."""

import zlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the generator for a purpose: its numbers depend on the seed and the purpose, not on what else is drawn."""
    words = (zlib.crc32(part.encode()) if isinstance(part, str) else part for part in purpose)
    return np.random.default_rng([seed, *words])
