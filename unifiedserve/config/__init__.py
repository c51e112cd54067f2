"""Every option of the daemon, once: the CLI, the workers and the documentation all read it here."""

from unifiedserve.config.engine import EngineConfig
from unifiedserve.config.machine import AttentionBackend, DeviceName
from unifiedserve.config.media import DecodeOn, ImageBackground, VideoDecoderName
from unifiedserve.config.memory import DEFAULT_KV_CACHE_MIB, MIB
from unifiedserve.config.scheduling import DualStreams, Order, Scheduling

#: Pillow's warning of an image that is smaller than what is allowed here: as a regular expression
LARGE_IMAGE_WARNING = "Image size .* exceeds limit"
#: environment variables: the server's API keys, and the one that a client of ours shows
API_KEYS, API_KEY = "UNIFIEDSERVE_API_KEYS", "UNIFIEDSERVE_API_KEY"

__all__ = [
    "API_KEY",
    "API_KEYS",
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
]
