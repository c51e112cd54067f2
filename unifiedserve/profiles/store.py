"""Store profiles in the user's cache folder: one file for each model on each kind of hardware."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from unifiedserve.errors import ConfigError
from unifiedserve.profiles.files import is_writable, read_profile, write_profile
from unifiedserve.profiles.hardware_profile import HardwareProfile
from unifiedserve.user_cache import cache_folder

_log = logging.getLogger(__name__)
_DIGITS = 16  # of a file's name


def keep_profile(profile: HardwareProfile, folder: Path | None = None) -> Path:
    """Write a profile where `stored_profile` finds it; return its path. Raises ConfigError if that cannot be."""
    path = _path(profile.digest, profile.hardware, folder)
    write_profile(path, profile)
    return path


def check_store(folder: Path | None = None) -> None:
    """Raise ConfigError if `keep_profile` could not write."""
    place = folder or cache_folder() / "profiles"
    if not is_writable(place):
        raise ConfigError(f"{place}: profiles cannot be kept here: make it writable, or give a file with --out")


def stored_profile(
    digest: str, hardware: str, versions: Mapping[str, str] | None = None, folder: Path | None = None
) -> HardwareProfile | None:
    """Return what was measured of a model, by its digest, on this hardware; None if nothing was.

    One that cannot be read, or was measured with other `versions` (None: with any), is as if there were none; the log
    says why.
    """
    path = _path(digest, hardware, folder)
    if not path.exists():
        return None
    try:
        profile = read_profile(path)
        profile.check(digest, hardware)
    except ConfigError as error:
        _log.warning("the stored profile is not used: %s", error)
        return None
    changed = {name: other for name, other in (versions or {}).items() if profile.versions.get(name) != other}
    if changed:
        parts = ", ".join(f"{name} {profile.versions.get(name, 'unknown')}, now {new}" for name, new in changed.items())
        _log.warning("the stored profile is not used: measured with %s; run unifiedserve profile again", parts)
        return None
    return profile


def _path(digest: str, hardware: str, folder: Path | None) -> Path:
    name = hashlib.sha256(f"{digest}\n{hardware}".encode()).hexdigest()[:_DIGITS]
    return (folder or cache_folder() / "profiles") / f"{name}.toml"
