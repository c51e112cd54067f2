"""Read a form with a file from a request, within the limits."""

import codecs
import logging
import tempfile
import time
from collections.abc import AsyncGenerator
from typing import Literal

import msgspec
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.server.access.caller import Caller
from unifiedserve.server.media.file_store import FileFacts, FileStore
from unifiedserve.server.requests.body import Bodies, announced_length
from unifiedserve.server.requests.parse import shortened

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 60
_MOST_FIELDS = 8
_FORM_BYTES = 1 << 16  # of a body, beside the file
_CHARSETS = ("utf-8", "ascii", "iso8859-1")  # some of Python's others take quadratic time, or fail in their own ways


class FileObject(msgspec.Struct, kw_only=True):
    """Describe a file as OpenAI's API does."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


async def upload(request: Request, files: FileStore, bodies: Bodies, caller: Caller) -> FileObject:
    """Keep the file of a form with the fields `file` and `purpose`.

    Raises RequestError: 413 above the limit, before the body is read if its length is announced; 408 if it stalls.
    """
    form = await _parse(request, files.max_bytes, bodies)
    file, purpose = form.get("file"), form.get("purpose")
    if not isinstance(file, UploadFile) or not isinstance(purpose, str):
        await form.close()
        field = "purpose" if isinstance(file, UploadFile) else "file"
        raise RequestError(f"The form lacks the field `{field}`.", param=field)
    if not file.size:
        await form.close()
        raise RequestError(f"The file {file.filename or ''} is empty.", param="file")
    facts = FileFacts(file.size, file.filename or "", purpose, int(time.time()), file.content_type or "")
    return file_object(files.keep(file.file, facts, caller), facts)


def file_object(id: str, facts: FileFacts) -> FileObject:
    """Return the description of a file."""
    return FileObject(id=id, bytes=facts.size, created_at=facts.created, filename=facts.name, purpose=facts.purpose)


async def _parse(request: Request, max_bytes: int, bodies: Bodies) -> FormData:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestError("A file must be sent as multipart/form-data.", ErrorKind.CONTENT_TYPE)
    _check_charset(request)
    if announced_length(request) > max_bytes + _FORM_BYTES:
        raise _too_large(max_bytes)
    try:
        pieces = _limited(bodies.pieces(request), max_bytes)
        return await MultiPartParser(request.headers, pieces, max_files=1, max_fields=_MOST_FIELDS).parse()
    except (MultiPartException, KeyError) as error:
        raise RequestError(f"The form is malformed: {error}.") from None
    except OSError as error:
        _log.warning("an upload cannot be kept in %s: %s", tempfile.gettempdir(), error)
        raise RequestError(
            f"The server has no room to keep the file ({error.strerror or error}); try again later.",
            ErrorKind.NO_STORAGE,
            param="file",
            code="no_storage",
            retry_after=_RETRY_SECONDS,
        ) from None


def _check_charset(request: Request) -> None:
    """Raise RequestError 415 for a form in a character set that no client uses."""
    _, parameters = parse_options_header(request.headers["content-type"])
    charset = parameters.get(b"charset", b"utf-8").decode("latin-1")
    try:
        known = codecs.lookup(charset).name in _CHARSETS
    except (LookupError, ValueError):
        known = False
    if not known:
        raise RequestError(f"A form must be sent in UTF-8, not in '{shortened(charset)}'.", ErrorKind.CONTENT_TYPE)


async def _limited(pieces: AsyncGenerator[bytes], max_bytes: int) -> AsyncGenerator[bytes, None]:
    received = 0
    async for piece in pieces:
        received += len(piece)
        if received > max_bytes + _FORM_BYTES:
            raise _too_large(max_bytes)
        yield piece


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(
        f"The file is larger than {max_bytes >> 20} MiB (see --max-media-mib).",
        ErrorKind.TOO_LARGE,
        param="file",
        code="request_too_large",
    )
