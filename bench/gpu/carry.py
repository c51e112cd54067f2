"""Assemble what must travel to a machine without a network, for its Python 3.12 on x86-64.

python bench/gpu/carry.py --out bench/gpu/carry

Packages that such a machine lacks, FFmpeg with headers, short clips, references made here and the transformers that
made them; with --peers other decoders, too. Needs pip, and apt-get for libswscale's headers: where that finds none,
FFmpeg is left out.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.gpu import cargo

    parser = argparse.ArgumentParser(description="Assemble what must travel to a machine without a network.")
    parser.add_argument("--out", type=Path, default=cargo.CARRIED, help="folder, emptied first")
    parser.add_argument("--limit-mib", type=float, default=62.0, help="the most that may travel")
    parser.add_argument("--peers", action="store_true", help="also other decoders, which nvdec_beside compares")
    options = parser.parse_args()
    sys.exit(cargo.assemble(options.out, options.limit_mib, options.peers))
