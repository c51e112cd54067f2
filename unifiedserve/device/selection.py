"""Which device an engine computes on: decided once, before anything is taken of it."""

import logging

from unifiedserve.config import EngineConfig
from unifiedserve.device import Device, open_device
from unifiedserve.device.cuda.sharing import stay_outside
from unifiedserve.device.cuda.support import has_gpu, obstacle
from unifiedserve.errors import ConfigError

_log = logging.getLogger(__name__)


def select_device(config: EngineConfig) -> Device:
    """Return the device for `--device`; raises ConfigError if that is "cuda" and there is none that can be used."""
    if config.device == "cpu":
        return open_device("cpu", config)
    stay_outside()
    reason = obstacle()
    if reason is None:
        return open_device("cuda", config)
    if config.device == "cuda":
        raise ConfigError(f"--device cuda: {reason}")
    _log.log(logging.WARNING if has_gpu() else logging.INFO, "computing on the CPU: %s", reason)
    return open_device("cpu", config)
