"""Load the workers' side of checkpoints."""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from unifiedserve.device import CPU, Device
from unifiedserve.heap import without_collections
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.loading import rehearse_loading
from unifiedserve.models.registry import FAMILIES, family_class, load_config
from unifiedserve.placement import Network
from unifiedserve.ranks.group import Group


def load_adapter(
    model_dir: Path,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype,
    device: Device = CPU,
    networks: Collection[Network] = tuple(Network),
    group: Group | None = None,
) -> LanguageAdapter:
    """Load a checkpoint's model side, or these networks of it, over attached weights. The weights are on the device.

    In a `group` it is one rank's part. Raises ConfigError as the adapter does.
    """
    config = load_config(model_dir)
    make = family_class(FAMILIES[config.model_type].adapter)
    adapter: LanguageAdapter = make(config, weights, dtype, model_dir, device, networks, group)
    return adapter


@cache
def preload(model_dir: Path, dtype: torch.dtype) -> None:
    """Do once for a checkpoint what every `load_adapter` needs, and load nothing. Raises ConfigError as it does."""
    with without_collections():
        config = load_config(model_dir)
        family_class(FAMILIES[config.model_type].adapter)
        rehearse_loading(config, dtype)
