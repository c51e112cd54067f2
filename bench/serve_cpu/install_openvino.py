"""Install OpenVINO GenAI in a virtual environment of its own.

python bench/serve_cpu/install_openvino.py
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

VERSION = "2026.4.1.0"
DEFAULT_FOLDER = Path("~/.cache/unifiedserve-bench/openvino").expanduser()


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def is_installed(folder: Path) -> bool:
    return bool(list(folder.glob(f"lib/python3*/site-packages/openvino_genai-{VERSION}*.dist-info/METADATA")))


def main(folder: Annotated[Path, typer.Option(help="Keeps the environment")] = DEFAULT_FOLDER) -> None:
    """Install it, unless it is there."""
    if not is_installed(folder):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python_of(folder), "-m", "pip", "install", f"openvino-genai=={VERSION}"], check=True)
    print(f"OpenVINO GenAI {VERSION} is in {folder}")


if __name__ == "__main__":
    typer.run(main)
