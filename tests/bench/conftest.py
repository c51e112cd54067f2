"""The benchmarks' modules import each other as scripts do."""

import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
sys.path[:0] = [str(BENCH / "decode"), str(BENCH / "serve_cpu"), str(BENCH / "papers")]
