"""A worker's process, however it is started: its imports, its name, its parent's end and its exit code."""

import ctypes
import logging
import os
import warnings
from collections.abc import Callable
from typing import NoReturn

from unifiedserve.config import LARGE_IMAGE_WARNING
from unifiedserve.models.hub import load_transformers
from unifiedserve.parents_end import end_with_parent
from unifiedserve.worker import loop
from unifiedserve.worker.assembly import DAMAGED_WEIGHTS, DamagedWeightsError
from unifiedserve.worker.spec import WorkerSpec

_PR_SET_NAME = 15


def prepare_interpreter() -> None:
    """Import what all workers need."""
    warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
    load_transformers()


def rename(name: str) -> None:
    """Set the name (at most 15 characters are kept) that `ps -o comm` and `top` show."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def become_worker(parent: int, prepare: Callable[[], None], spec: WorkerSpec) -> NoReturn:
    """Prepare, run the worker and end this process with the worker's exit code.

    `parent` is the id of the process that started this one; with its end, this one ends.
    """
    code = 1
    try:
        end_with_parent()
        if os.getppid() == parent:  # else it died before the line above took hold
            prepare()
            rename(f"us:{spec.instance.name}")
            loop.run(spec)
            code = 0
    except DamagedWeightsError as error:
        logging.error("%s", error)
        code = DAMAGED_WEIGHTS
    except BaseException:
        logging.exception("the worker cannot go on")
    finally:
        logging.shutdown()
        os._exit(code)
