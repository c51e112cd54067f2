"""Run `unifiedserve calibrate`: an importance matrix of a model over a text, measured and written."""

import os
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

from unifiedserve.device import CPU
from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.models.calibration import WINDOW, Calibration
from unifiedserve.models.gguf.importance import write_importance
from unifiedserve.models.hub import resolve_model
from unifiedserve.models.loading import pretrained
from unifiedserve.models.registry import load_processor
from unifiedserve.quantization.read import quantization_config
from unifiedserve.whole_file import put_whole


def run(model: str, text: Path, tokens: int, dtype: str, output: Path | None, console: Console) -> None:
    """Measure over a text's first tokens, and write the file.

    Raises ConfigError for a text that is too short, a model that cannot be measured, and if nothing can be written.
    """
    words, path = _read(text), output or Path(f"{Path(os.path.abspath(model)).name}.imatrix.gguf")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path}: no file can be written there: name another with --output")
    model_dir = _plain(model)
    processor = load_processor(model_dir)
    ids = processor.tokenizer(words)["input_ids"][:tokens]
    if len(ids) < WINDOW:
        raise ConfigError(f"{text}: {len(ids)} tokens are too few; a window has {WINDOW}")
    number_type: torch.dtype = getattr(torch, CPU.best_dtype() if dtype == "auto" else dtype)
    calibration = Calibration(pretrained(model_dir, processor.config, number_type))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("tokens", total=len(ids) // WINDOW * WINDOW)
        for done in calibration.run(ids):
            progress.update(task, completed=done)
    squares = calibration.squares()
    try:
        with put_whole(path) as own:
            write_importance(own, squares, text.name, WINDOW)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    _tell(console, len(squares), calibration, path, model)


def _read(text: Path) -> str:
    try:
        return text.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{text}: no readable text: {error}") from error


def _plain(model: str) -> Path:
    """Return a checkpoint's directory. Raises ConfigError for one of quantised weights, and for GGUF files."""
    if model.endswith(".gguf"):
        raise ConfigError(
            f"{model}: give the checkpoint that it was made of: its importance matrix is of this file, too"
        )
    model_dir = resolve_model(model)
    if quantization_config(read_json(model_dir / "config.json")):
        raise ConfigError(f"{model}: this checkpoint is quantised already: give the one that it was made of")
    return model_dir


def _tell(console: Console, matrices: int, calibration: Calibration, path: Path, model: str) -> None:
    lines = [f"written to {path}: {matrices} matrices over {calibration.rows} tokens"]
    if left_out := calibration.unnamed:
        lines.append(f"left out, because GGUF files have no names for them: {len(left_out)} such as {left_out[0]}")
    lines.append(f"serve with: unifiedserve serve {model} --quantization int4 --importance {path}")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
