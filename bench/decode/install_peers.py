"""Install the other decoders, each alone: their FFmpegs, torches and module names do not get along.

python bench/decode/install_peers.py               # from the package index, into build/peers
python bench/decode/install_peers.py --wheels DIR  # from wheels that are there already
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from peers import CONTESTANTS, ENVIRONMENTS, FLOOR, FOLDER, ON_GPU, Environment, folder_of
from rich.console import Console

PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def main(
    folder: Annotated[Path, typer.Option(help="Where they go")] = FOLDER,
    wheels: Annotated[Path | None, typer.Option(help="Take them from this folder instead of the package index")] = None,
) -> None:
    """Install what is not there yet. What cannot be installed here is said and left out."""
    console = Console(stderr=True)
    source = [] if wheels is None else ["--no-index", "--find-links", str(wheels)]
    packages = dict.fromkeys(contestant.package for contestant in (FLOOR, *CONTESTANTS.values(), *ON_GPU.values()))
    for package in filter(None, packages):
        target = folder_of(package, folder)
        if target.exists():
            continue
        try:
            install(package, target, source)
            console.print(f"{package}: installed")
        except subprocess.CalledProcessError as error:
            shutil.rmtree(target, ignore_errors=True)
            console.print(f"{package}: left out: {error.stderr.strip().splitlines()[-1]}")


def install(package: str, target: Path, source: list[str]) -> None:
    """Install a distribution alone in a folder, or with others in an environment if it needs one."""
    environment = ENVIRONMENTS.get(package)
    if environment is None:
        run(*PIP, "install", "--no-deps", *source, "--target", str(target), package)
    else:
        run(best_python(environment), "-m", "venv", "--without-pip", str(target))
        run(*PIP, "--python", str(target), "install", *source, package, *environment.packages)


def best_python(environment: Environment) -> str:
    """Return the first of the environment's interpreters that runs here, or this program's own."""
    found = filter(None, map(shutil.which, environment.pythons))
    return next((path for path in found if runs(path)), sys.executable)


def runs(python: str) -> bool:
    return subprocess.run([python, "--version"], capture_output=True).returncode == 0


def run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


if __name__ == "__main__":
    typer.run(main)
