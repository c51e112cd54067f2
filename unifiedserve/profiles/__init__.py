"""Describe what one device does with one model: measured here, or written by hand from a paper. Kept as TOML."""

from unifiedserve.profiles.files import check_file, is_writable, read_profile, write_profile
from unifiedserve.profiles.hardware import hardware_name, versions_here
from unifiedserve.profiles.hardware_profile import DeviceSize, HardwareProfile, ModelSizes
from unifiedserve.profiles.steps import steps_of
from unifiedserve.profiles.store import check_store, keep_profile, stored_profile

__all__ = [
    "DeviceSize",
    "HardwareProfile",
    "ModelSizes",
    "check_file",
    "check_store",
    "hardware_name",
    "is_writable",
    "keep_profile",
    "read_profile",
    "steps_of",
    "stored_profile",
    "versions_here",
    "write_profile",
]
