"""Run llama.cpp's own benchmark of streams at once, without a server.

They are of one length, without sampling and HTTP.

It prints as offline.py does: a line of JSON for each workload, which is `streams` alone.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Annotated, Any

import gguf_checkpoint
import install_llamacpp
import typer
from course import QUICK, Sizes
from rows import AT_A_TIME
from servers import SLOT_TOKENS


def streams(program: Path, model: Path, sizes: Sizes) -> dict[str, Any]:
    """Measure the rate of texts at once, by their number."""
    prompt = sizes.prompt // 2
    context = AT_A_TIME[-1] * SLOT_TOKENS  # a sequence takes whole hundreds of it
    asked = ["-npp", str(prompt), "-ntg", str(sizes.stream), "-npl", ",".join(map(str, AT_A_TIME))]
    threads = str(os.cpu_count())
    command = [str(program), "-m", str(model), "-c", str(context), "-t", threads, "-tb", threads, *asked]
    output = subprocess.run([*command, "--output-format", "jsonl"], check=True, capture_output=True, text=True)
    found: dict[str, Any] = {}
    for line in output.stdout.splitlines():
        if line.startswith("{"):
            measured = json.loads(line)
            number = measured["pl"]
            found |= {f"tokens{number}": measured["speed_tg"], f"tbt{number}": measured["t_tg"] / measured["tg"]}
    return found


def main(
    llamacpp: Annotated[Path, typer.Argument(help="Folder that install_llamacpp.py filled")],
    checkpoint: Annotated[Path, typer.Argument()],
    weights: Annotated[str, typer.Option(help="The GGUF file's type")] = gguf_checkpoint.PLAIN,
    quick: Annotated[bool, typer.Option()] = False,
) -> None:
    """Run it."""
    program = install_llamacpp.program(llamacpp, "llama-batched-bench")
    model = gguf_checkpoint.model_file(checkpoint, llamacpp, weights)
    print(json.dumps({"streams": streams(program, model, QUICK if quick else Sizes())}), flush=True)


if __name__ == "__main__":
    typer.run(main)
