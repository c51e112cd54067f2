"""How media get to the server: by the path of a file that it can read, in the request, or over HTTP from here."""

import base64
import functools
import mimetypes
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Protocol, get_args

import msgspec

from unifiedserve.errors import ConfigError

Delivery = Literal["file", "data", "http"]
_ROOM = 0.5  # share of the free memory that encoded media may take


class Media(Protocol):
    """The media of a run, each found by the path of its file."""

    def url(self, path: str) -> msgspec.Raw:
        """Return the URL of a medium as a JSON string."""


@contextmanager
def delivered(delivery: str, paths: list[str]) -> Iterator[Media]:
    """Make the files at `paths` ready to be sent, so that nothing is left to be done when a request is due.

    Raises ConfigError if a file is not there, there is no such delivery, or they do not fit into the memory.
    """
    for path in paths:
        if not Path(path).is_file():
            raise ConfigError(f"{path}: no such file")
    match delivery:
        case "file":
            yield _Given({path: Path(path).resolve().as_uri() for path in paths})
        case "data":
            yield _Encoded(paths)
        case "http":
            with _served(paths) as urls:
                yield _Given(urls)
        case _:
            raise ConfigError(f"--media: there is no {delivery!r}; choose one of {', '.join(get_args(Delivery))}")


class _Given:
    """Media that the server gets by itself."""

    def __init__(self, urls: dict[str, str]) -> None:
        self._urls = {path: msgspec.Raw(msgspec.json.encode(url)) for path, url in urls.items()}

    def url(self, path: str) -> msgspec.Raw:
        return self._urls[path]


class _Encoded:
    """Media as data URLs, each file's once."""

    def __init__(self, paths: list[str]) -> None:
        size = sum(Path(path).stat().st_size for path in set(paths)) * 4 // 3
        free = _free_memory()
        if size > _ROOM * free:
            raise ConfigError(
                f"the media take {size / 2**30:.1f} GiB as data URLs, and {free / 2**30:.1f} GiB are free: "
                "choose --media file or --media http"
            )
        self._urls = {path: _data_url(path) for path in set(paths)}

    def url(self, path: str) -> msgspec.Raw:
        return self._urls[path]


def _free_memory() -> int:
    """Bytes that programs can still have."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def _data_url(path: str) -> msgspec.Raw:
    encoded = base64.b64encode(Path(path).read_bytes())
    return msgspec.Raw(b'"data:' + media_type(path).encode() + b";base64," + encoded + b'"')


def media_type(path: str) -> str:
    """Return a file's media type by its name."""
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


@contextmanager
def _served(paths: list[str]) -> Iterator[dict[str, str]]:
    """Serve the files on this machine from a thread; yield their URLs."""
    names = {f"/{number}{Path(path).suffix}": path for number, path in enumerate(dict.fromkeys(paths))}
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Files, names))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield {path: f"http://127.0.0.1:{server.server_port}{name}" for name, path in names.items()}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Files(BaseHTTPRequestHandler):
    """Answers GET with one of some files."""

    def __init__(self, names: dict[str, str], *connection: object) -> None:
        self._names = names
        super().__init__(*connection)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        path = self._names.get(self.path)
        if path is None:
            self.send_error(404)
            return
        with open(path, "rb") as file:
            self.send_response(200)
            self.send_header("Content-Type", media_type(path))
            self.send_header("Content-Length", str(Path(path).stat().st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
