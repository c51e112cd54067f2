"""Deliver media to the server: uploaded before, in the request, by the path of a file, or over HTTP from here."""

import base64
import functools
import mimetypes
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Protocol, get_args

import msgspec

from unifiedserve.doctor.system import available_bytes
from unifiedserve.errors import ConfigError

Delivery = Literal["auto", "file", "data", "http"]
LARGE_BYTES = 8 << 20  # of a file that `auto` uploads: several smaller ones fit into a request's body as base64
_ROOM = 0.5  # share of the free memory that encoded media may take
_TYPES = {  # beside those that every Python knows
    ".flv": "video/x-flv",
    ".jfif": "image/jpeg",
    ".m2ts": "video/mp2t",
    ".m4v": "video/mp4",
    ".mkv": "video/x-matroska",
    ".mts": "video/mp2t",
    ".ogv": "video/ogg",
    ".ts": "video/mp2t",
    ".webp": "image/webp",
    ".wmv": "video/x-ms-wmv",
}


class Media(Protocol):
    """Hold the media of a run, each found by the path of its file."""

    def url(self, path: str) -> msgspec.Raw:
        """Return the URL of a medium as a JSON string."""


def large_files(delivery: str, paths: Iterable[str]) -> list[str]:
    """Return the files that are too large for requests, and may be uploaded instead.

    Raises ConfigError if a file is not there.
    """
    sizes = {path: _size(path) for path in paths}
    return [path for path, size in sizes.items() if size > LARGE_BYTES] if delivery == "auto" else []


def describe(delivery: str, paths: Collection[str], large: Collection[str]) -> str:
    """Return in words how media travel, of which the `large` ones are uploaded; empty if there are none."""
    if not paths:
        return ""
    ways = {"file": "by path", "http": "from the client, over HTTP"}
    ahead = f"; files above {LARGE_BYTES >> 20} MiB uploaded before the run" if large else ""
    return ways.get(delivery, "in the requests") + ahead


@contextmanager
def delivered(delivery: str, paths: list[str], uploaded: Mapping[str, str]) -> Iterator[Media]:
    """Make the files at `paths` ready to be sent. Nothing is left to be done when a request is due.

    `uploaded` has the ids of those that the server has already. Raises ConfigError if a file is not there, there is no
    such delivery, or the media do not fit into the memory.
    """
    rest = list(dict.fromkeys(path for path in paths if path not in uploaded))
    sizes = {path: _size(path) for path in rest}
    match delivery:
        case "file":
            yield _Urls({path: Path(path).resolve().as_uri() for path in rest})
        case "auto" | "data":
            _check_memory(sum(sizes.values()) * 4 // 3)
            yield _Urls(uploaded, {path: _data_url(path) for path in rest})
        case "http":
            with _served(rest) as urls:
                yield _Urls(urls)
        case _:
            raise ConfigError(f"--media: there is no {delivery!r}; choose one of {', '.join(get_args(Delivery))}")


class _Urls:
    """Hold URLs of media, some of them as JSON already."""

    def __init__(self, urls: Mapping[str, str], encoded: Mapping[str, msgspec.Raw] | None = None) -> None:
        self._urls = {path: msgspec.Raw(msgspec.json.encode(url)) for path, url in urls.items()} | dict(encoded or {})

    def url(self, path: str) -> msgspec.Raw:
        return self._urls[path]


def _size(path: str) -> int:
    """Return the bytes of a file. Raises ConfigError if it is not there."""
    if not Path(path).is_file():
        raise ConfigError(f"{path}: no such file")
    return Path(path).stat().st_size


def _check_memory(size: int) -> None:
    """Raise ConfigError if data URLs of `size` bytes do not fit into the memory."""
    free = available_bytes()
    if size > _ROOM * free:
        raise ConfigError(
            f"the media take {size / 2**30:.1f} GiB as data URLs, and {free / 2**30:.1f} GiB are free: "
            "choose --media file or --media http"
        )


def _data_url(path: str) -> msgspec.Raw:
    encoded = base64.b64encode(Path(path).read_bytes())
    return msgspec.Raw(b'"data:' + media_type(path).encode() + b";base64," + encoded + b'"')


def media_type(path: str) -> str:
    """Return a file's media type by its name, the same on every machine."""
    return _types().guess_type(path)[0] or "application/octet-stream"


@functools.cache
def _types() -> mimetypes.MimeTypes:
    """Return Python's own types and ours, without those that some machines list in files."""
    types = mimetypes.MimeTypes()
    for suffix, type in _TYPES.items():
        types.add_type(type, suffix)
    return types


@contextmanager
def _served(paths: list[str]) -> Iterator[dict[str, str]]:
    """Serve the files on this machine from a thread; yield their URLs."""
    names = {f"/{number}{Path(path).suffix}": path for number, path in enumerate(dict.fromkeys(paths))}
    server = FileServer(("127.0.0.1", 0), functools.partial(_Files, names))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield {path: f"http://127.0.0.1:{server.server_port}{name}" for name, path in names.items()}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class FileServer(ThreadingHTTPServer):
    """Serve files to many at once: one who finds no place in the queue of connections tries again after a second."""

    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who hangs up has a reason, and says it in the answer."""


class _Files(BaseHTTPRequestHandler):
    """Answer GET with one of some files."""

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
