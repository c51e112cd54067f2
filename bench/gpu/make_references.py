"""Write what transformers answers on this machine's processor, to compare with elsewhere.

python bench/gpu/make_references.py --out bench/gpu/carry/references

For every family's tiny checkpoint and the bundled model: a digest of the weights, the prompts' tokens, greedy float32
tokens, the logits behind the last token of each prompt, and how far off they are in bfloat16.
"""

import argparse
import sys
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write references, made on the processor.")
    parser.add_argument("--out", type=Path, required=True, help="folder for references.npz")
    parser.add_argument("--only", action="append", help="these families only")
    options = parser.parse_args()
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.gpu import references

    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        size = references.write(options.out, Path(scratch), options.only)
    print(f"{size / 1e6:.2f} MB of references in {options.out}")


if __name__ == "__main__":
    main()
