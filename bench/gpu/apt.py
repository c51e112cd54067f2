"""Files of a Debian package of another release than this machine's, from the same place as its own."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path("/etc/apt/sources.list.d")
RELEASE = Path("/etc/os-release")


@dataclass(frozen=True)
class Package:
    name: str
    suite: str


def unpack(package: Package, scratch: Path) -> Path:
    """Download a package and return the folder in which its files are; nothing of the machine's own changes.

    Raises OSError or SubprocessError where there is no Debian, or no such package.
    """
    lists, sources = scratch / "lists", scratch / "sources"
    (lists / "partial").mkdir(parents=True)
    sources.mkdir()
    for file in [*SOURCES.glob("debian*"), Path("/etc/apt/sources.list")]:
        if file.exists():
            text = re.sub(rf"\b{_own_suite()}\b", package.suite, file.read_text())
            (sources / (file.name if file.suffix == ".sources" else f"{file.stem}.list")).write_text(text)
    places = {
        "Dir::Etc::sourcelist": os.devnull,
        "Dir::Etc::sourceparts": sources,
        "Dir::State::lists": lists,
        "Dir::Cache::archives": scratch,
        "APT::Sandbox::User": "root",
    }
    options = [option for name, value in places.items() for option in ("-o", f"{name}={value}")]
    for command in (["update"], ["download", package.name]):
        subprocess.run(["apt-get", "-qq", *options, *command], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    files = scratch / "files"
    subprocess.run(["dpkg-deb", "-x", str(next(scratch.glob(f"{package.name}_*.deb"))), str(files)], check=True)
    return files


def _own_suite() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)$", RELEASE.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{RELEASE} names no release")
    return found[1]
