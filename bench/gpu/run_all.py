"""Try everything that a machine with a GPU can tell, in minutes and without a network.

python bench/gpu/run_all.py --visit first|second|third --out FOLDER
python bench/gpu/run_all.py --part probe|core|nvdec|serve|all --only ITEM --out FOLDER --deadline SECONDS

Needs nothing but the standard library to begin; what else an item needs is said where it is missing.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # so that nothing need be installed
    from bench.gpu.command import main

    sys.exit(main())
