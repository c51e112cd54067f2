"""Fork reading processes, in a process that has imported what they need. It never looks at media itself.

`python -m unifiedserve.reading.nursery FD SETUP` gives, for each byte that comes in over the socket FD, the id of a new
reading process, the end of a socket to it and its process descriptor. It ends when the other end of FD is closed.
"""

import importlib
import os
import resource
import signal
import socket
import sys
from typing import NoReturn

import msgspec
from PIL import Image

from unifiedserve.reading.jobs import Setup
from unifiedserve.reading.peers import PID_BYTES
from unifiedserve.reading.process import serve
from unifiedserve.sandbox import give_up

_SHARED_MEMORY = "/dev/shm"
_NICE = 7  # as workers that prepare what nobody sees yet: streams and the HTTP server take the cores first


def _serve_all(asker: socket.socket, setup: Setup) -> None:
    while asker.recv(1):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            asker.close()
            _become_reader(theirs, setup)
        theirs.close()
        process = os.pidfd_open(pid)
        socket.send_fds(asker, [pid.to_bytes(PID_BYTES)], [ours.fileno(), process])
        os.close(process)
        ours.close()


def _become_reader(peer: socket.socket, setup: Setup) -> NoReturn:
    try:
        os.nice(_NICE)
        resource.setrlimit(resource.RLIMIT_DATA, (setup.max_bytes, setup.max_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if setup.confined:
            give_up(readable=setup.readable, writable=[_SHARED_MEMORY])
        serve(peer, setup)
    finally:
        os._exit(1)


def main() -> None:
    """Run the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how readers ended
    Image.init()
    importlib.import_module("flashcodec.bitstream")  # FFmpeg, once for all readers
    _serve_all(socket.socket(fileno=int(sys.argv[1])), msgspec.json.decode(sys.argv[2], type=Setup))
    os._exit(0)


if __name__ == "__main__":
    main()
