"""Items for the tests of the GPU bench's runner: well-behaved ones and others. Imported by the runner's children."""

import os
import signal
import subprocess
import sys
import time

from bench.gpu import machine
from bench.gpu.figures import Figures, Skip


def finds(figures: Figures, what: str) -> None:
    figures.add(found=what)


def skips(figures: Figures) -> None:
    raise Skip("nothing to do here")


def raises(figures: Figures) -> None:
    figures.add(half=1)
    raise ValueError("so it\nis")


def skips_as_tests_do(figures: Figures) -> None:
    import pytest  # here, as each item's process imports this module

    pytest.skip("no such package")


def crashes(figures: Figures) -> None:
    figures.add(half=1)
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(figures: Figures) -> None:
    """Hang beside a child in the same group and a daemon that has left it."""
    children = [subprocess.Popen(["sleep", "600"], start_new_session=daemon) for daemon in (False, True)]
    figures.add(pids=[os.getpid(), *(child.pid for child in children)])
    time.sleep(600)


def leaves_a_daemon(figures: Figures) -> None:
    """End at once, and leave a process whose parent is gone."""
    program = (
        "import subprocess; "
        "print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL).pid)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    figures.add(pid=int(done.stdout))


def interrupts_the_runner(figures: Figures) -> None:
    figures.add(half=1)
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600)


def kills_the_runner(figures: Figures) -> None:
    os.kill(os.getppid(), signal.SIGKILL)


def terminates_the_runner(figures: Figures) -> None:
    figures.add(half=1)
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(600)


def talks(figures: Figures, size: str) -> None:
    """Write a log of so many random bytes between a first and a last line."""
    sys.stdout.buffer.write(b"first\n" + os.urandom(int(size)) + b"\nlast\n")


def tells_its_sandbox(figures: Figures) -> None:
    figures.add(sandbox=os.environ[machine.SANDBOX_VARIABLE])
