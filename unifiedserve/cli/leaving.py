"""End a process that must not wait for a thread which never ends. One that renders a hostile template may not."""

import atexit
import logging
import os
import sys
from typing import NoReturn


def leave(code: int = 0) -> NoReturn:
    """End this process now, with this exit code: handlers of the end run, but no thread is waited for."""
    atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
