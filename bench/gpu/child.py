"""An item's own process: `python -m bench.gpu.child module:function FIGURES [ARGUMENTS]`."""

import ctypes
import importlib
import signal
import sys
import traceback
from pathlib import Path

from bench.gpu.figures import Figures, Skip

PR_SET_PDEATHSIG = 1


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a runner that is killed leaves nobody on the GPU
    target, path, *arguments = sys.argv[1:]
    figures = Figures(Path(path))
    module, _, function = target.partition(":")
    try:
        getattr(importlib.import_module(module), function)(figures, *arguments)
    except Skip as reason:
        figures.end(skipped=str(reason))
    except BaseException as error:  # also a test's way to skip
        traceback.print_exc()
        figures.end(error=_one_line(error))
        return 1
    return 0


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


if __name__ == "__main__":
    sys.exit(main())
