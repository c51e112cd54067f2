"""The end of a process that must not wait for a thread which never ends, as one that renders a hostile template."""

import atexit
import logging
import os
import sys
from typing import NoReturn


def leave() -> NoReturn:
    """End this process now, with exit code 0: what is to be done at the end is, but no thread is waited for."""
    atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
