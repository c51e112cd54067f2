"""Define what both ends of a reading process's socket ask.

Such processes come over another socket, which is here, too.
"""

import socket

PID_BYTES = 4  # of a process id as it is sent, the highest byte first


def is_closed(peer: socket.socket) -> bool:
    """Tell whether the other end is closed; nothing is taken from the socket."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
