"""What both ends of a reading process's socket ask of it."""

import socket


def is_closed(peer: socket.socket) -> bool:
    """Tell whether the other end is closed; nothing is taken from the socket."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
