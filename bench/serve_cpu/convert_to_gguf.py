"""Run llama.cpp's own converter on checkpoints whose tokenizer it does not know.

Text is cut into words as GPT-2 does.

    python bench/serve_cpu/convert_to_gguf.py FOLDER CHECKPOINT OPTIONS

FOLDER is the one that install_llamacpp.py filled; OPTIONS are the converter's.
"""

import importlib
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Run the converter. It brings its own version of the package `gguf`, so it needs a process of its own."""
    sys.path[:0] = [str(folder / "gguf-py"), str(folder)]
    text, family = (importlib.import_module(f"conversion.{name}") for name in ("base", "qwenvl"))
    text.TextModel.get_vocab_base_pre = lambda model, tokenizer: "gpt-2"
    family.Qwen2VLModel.set_vocab = family.Qwen2VLModel._set_vocab_gpt2
    importlib.import_module("convert_hf_to_gguf").main()


if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    main(folder)
