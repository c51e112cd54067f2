"""Define every option of the daemon once. The CLI, the workers and the documentation all read it here."""

from unifiedserve.config.engine import EngineConfig
from unifiedserve.config.keys import (
    carrier_token,
    cluster_key,
    key_header,
    required_cluster_key,
)
from unifiedserve.config.machine import AttentionBackend, DeviceName, named_gpus
from unifiedserve.config.media import DecodeOn, ImageBackground, VideoDecoderName
from unifiedserve.config.memory import DEFAULT_KV_CACHE_MIB, MIB
from unifiedserve.config.scheduling import DualStreams, Order, Scheduling
from unifiedserve.environment import API_KEY, API_KEYS, CLUSTER_KEY

#: Pillow's warning of an image that is smaller than what is allowed here: as a regular expression
LARGE_IMAGE_WARNING = "Image size .* exceeds limit"

__all__ = [
    "API_KEY",
    "API_KEYS",
    "CLUSTER_KEY",
    "DEFAULT_KV_CACHE_MIB",
    "LARGE_IMAGE_WARNING",
    "MIB",
    "AttentionBackend",
    "DecodeOn",
    "DeviceName",
    "DualStreams",
    "EngineConfig",
    "ImageBackground",
    "Order",
    "Scheduling",
    "VideoDecoderName",
    "carrier_token",
    "cluster_key",
    "key_header",
    "named_gpus",
    "required_cluster_key",
]
