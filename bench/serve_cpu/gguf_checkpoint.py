"""Make GGUF files of the benchmark's checkpoint, by llama.cpp's own programs.

They are kept beside it.

The vision tower (mmproj) is a file of its own, in BF16 whatever the language model's types are.
"""

import subprocess
import sys
from pathlib import Path

import install_llamacpp

PLAIN = "bf16"
#: the types that llama-quantize makes of it; Q4_0 leaves the head in Q6_K
QUANTIZED = ("q8_0", "q4_0")


def folder_of(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}-gguf")


def model_file(checkpoint: Path, llamacpp: Path, kind: str = PLAIN) -> Path:
    """Return the language model's file, made if missing; the tower's lies beside it.

    Raises CalledProcessError or OSError if it cannot be made.
    """
    folder = folder_of(checkpoint)
    file = folder / f"model-{kind}.gguf"
    if file.exists():
        return file
    folder.mkdir(exist_ok=True)
    partial = file.with_suffix(".partial")
    if kind == PLAIN:
        _convert(checkpoint, llamacpp, tower_file(checkpoint), "--mmproj")
        _convert(checkpoint, llamacpp, partial)
    else:
        program = install_llamacpp.program(llamacpp, "llama-quantize")
        _run(str(program), str(model_file(checkpoint, llamacpp)), str(partial), kind.upper())
    return partial.replace(file)


def tower_file(checkpoint: Path) -> Path:
    return folder_of(checkpoint) / "mmproj-model.gguf"


def _convert(checkpoint: Path, llamacpp: Path, file: Path, *options: str) -> None:
    script = Path(__file__).with_name("convert_to_gguf.py")
    source = install_llamacpp.program(llamacpp, "")
    _run(
        *[sys.executable, str(script), str(source), str(checkpoint), "--outtype", PLAIN, "--outfile", str(file)],
        *options,
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
