"""Read and write profiles as TOML files."""

import os
from pathlib import Path

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.profiles.hardware_profile import HardwareProfile
from unifiedserve.whole_file import write_whole


def read_profile(path: Path) -> HardwareProfile:
    """Return the profile in a file. Raises ConfigError, which says in a line what is wrong with it."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=HardwareProfile)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: no profile: {str(error).replace('`$.', '`')}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path}: no TOML: {error}") from error


def is_writable(folder: Path) -> bool:
    """Tell whether a folder, there or to be made, can have a new file."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return there.is_dir() and os.access(there, os.W_OK)


def check_file(path: Path) -> None:
    """Raise ConfigError if `write_profile` could not write the file."""
    if path.is_dir() or not is_writable(path.absolute().parent):
        raise ConfigError(f"{path}: a profile cannot be written here: give another file")


def write_profile(path: Path, profile: HardwareProfile) -> None:
    """Write a profile, whole or not at all. Raises ConfigError if the file cannot be written."""
    try:
        write_whole(path, msgspec.toml.encode(profile))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
