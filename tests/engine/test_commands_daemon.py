"""A server that a command has started for itself ends with it, however that ends."""

import subprocess
import sys

import psutil
import pytest

#: a command that has a server and goes on until it is ended
COMMAND = """
import signal
from unifiedserve.cli.daemon import daemon
with daemon() as server:
    print(server.process.pid, flush=True)
    signal.pause()
"""
SECONDS = 120.0


@pytest.mark.parametrize("ending", ["terminate", "kill"])
def test_the_server_of_a_command_ends_with_it(ending: str) -> None:
    command = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    server = psutil.Process(int(command.stdout.readline()))
    getattr(command, ending)()
    command.communicate()
    server.wait(SECONDS)
