"""Set up a worker's process, however it is started: its imports, its name, its parent's end and its exit code."""

import importlib
import logging
import os
import warnings
from collections.abc import Callable
from typing import NoReturn

from unifiedserve.config import LARGE_IMAGE_WARNING
from unifiedserve.errors import ConfigError
from unifiedserve.models.bare_models import bare_models
from unifiedserve.models.hub import load_transformers
from unifiedserve.parents_end import end_with_parent
from unifiedserve.ranks.leader import OutOfStepError
from unifiedserve.worker import loop
from unifiedserve.worker.damage import DAMAGED_WEIGHTS, DamagedWeightsError
from unifiedserve.worker.process_name import rename
from unifiedserve.worker.spec import WorkerSpec


def prepare_interpreter() -> None:
    """Import what all workers need."""
    warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
    with bare_models():
        load_transformers()
    importlib.import_module("flashcodec._core")  # FFmpeg: the first medium finds its layouts without opening files


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
    except (ConfigError, OutOfStepError) as error:  # which say it all
        logging.error("the worker cannot go on: %s", error)
    except BaseException:
        logging.exception("the worker cannot go on")
    finally:
        logging.shutdown()
        os._exit(code)
