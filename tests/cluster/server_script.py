"""A server that does as its arguments say, in place of `unifiedserve`: it starts in milliseconds.

refuse: end as one that cannot start; die: serve, and end; mute: serve, and answer nothing; serve: as it should be;
talk: as serve, but with a long line on standard error before; leave: end, but leave a child that lives for a second.
What comes on standard input is written to the file that the second argument names.
"""

import http.server
import signal
import subprocess
import sys
import threading
from pathlib import Path


class Health(http.server.BaseHTTPRequestHandler):
    """Answers everything with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(how: str, told: str) -> None:
    if how == "refuse":
        print("  0.1 s  loading", file=sys.stderr)
        sys.exit("unifiedserve: there is no such model")
    if how == "leave":
        subprocess.Popen(["sleep", "1"])
        sys.exit("it is over")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    if how == "talk":
        print("x" * (1 << 20), file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if how != "mute":
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"Serving a model at http://127.0.0.1:{server.server_address[1]}", flush=True)
    if how == "die":
        sys.exit("it is over")
    with Path(told).open("ab", buffering=0) as file:
        for line in sys.stdin.buffer:
            file.write(line)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            sys.exit(2 if sys.argv[1] == "refuse" else 1)
        raise
