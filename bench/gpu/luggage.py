"""Check the folder that travelled, before anything is run."""

from pathlib import Path

from bench.gpu import cargo, machine


def complaints(carried: Path) -> list[str]:
    """Return a line for each thing that is missing or old."""
    found = []
    environment = machine.ROOT / ".venv"
    if environment.is_symlink():
        found.append(f"{environment} is a link: what it leads to did not travel, and nothing here uses it")
    if not carried.is_dir():
        return [*found, f"{carried} is not there: make it with carry.py, or items that need packages are skipped"]
    if not (carried / machine.PACKAGES_FOLDER).is_dir():
        found.append(f"{carried} has no packages for this Python: no folder {machine.PACKAGES_FOLDER}")
    theirs, ours = _read(carried / cargo.COMMIT), machine.commit(carried)
    if ours not in (None, theirs):
        found.append(f"{carried} is of commit {theirs}, and this tree of {ours}: references may be of other code")
    if _read(carried / cargo.CONTENTS) != cargo.contents():
        found.append(f"{carried} is old: carry.py would assemble other packages today")
    return found


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else "unknown"
