"""Uploaded media: kept for a while in files without a name, so that nothing is left however the process ends."""

import asyncio
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import BinaryIO, Literal, NamedTuple

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.server.body import announced_length, check_origin

FILE_ID = "file-"
_KEPT = 4  # times the largest medium: what all files may take together
_MOST_UPLOADS = 4  # at once
_MOST_FIELDS = 8
_FORM_BYTES = 1 << 16  # of a body, beside the file


class FileObject(msgspec.Struct, kw_only=True):
    """A file as OpenAI's API describes it."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class FileDeleted(msgspec.Struct):
    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class _Kept(NamedTuple):
    size: int
    file: BinaryIO
    lock: threading.Lock


class FileStore:
    """Bounded: the files that were not used for longest make room for new ones."""

    def __init__(self, config: EngineConfig) -> None:
        self.max_bytes = config.max_media_mib * MIB
        self._files: OrderedDict[str, _Kept] = OrderedDict()
        self._uploads = 0

    async def upload(self, request: Request) -> FileObject:
        """Take a form with the fields `file` and `purpose`.

        Raises RequestError: 413 above the limit, before the body is read if its length is announced.
        """
        check_origin(request)
        if self._uploads == _MOST_UPLOADS:
            raise RequestError(f"{_MOST_UPLOADS} uploads are under way; try again later.", status=503)
        self._uploads += 1
        try:
            form = await self._parse(request)
        finally:
            self._uploads -= 1
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, UploadFile) or not isinstance(purpose, str):
            await form.close()
            field = "purpose" if isinstance(file, UploadFile) else "file"
            raise RequestError(f"The form lacks the field `{field}`.", param=field)
        if not file.size:
            await form.close()
            raise RequestError(f"The file {file.filename or ''} is empty.", param="file")
        id = f"{FILE_ID}{secrets.token_hex(16)}"
        self._keep(id, _Kept(file.size, file.file, threading.Lock()))
        return FileObject(
            id=id,
            bytes=file.size,
            created_at=int(time.time()),
            filename=file.filename or "",
            purpose=purpose,
        )

    async def read(self, id: str) -> bytes:
        """Raises RequestError 404 for a file that was never there, or is there no more."""
        kept = self._files.get(id)
        if kept is None:
            raise _no_file(id)
        self._files.move_to_end(id)
        data = await asyncio.to_thread(_read, kept)
        if data is None:
            raise _no_file(id)
        return data

    def delete(self, id: str) -> FileDeleted:
        """Raises RequestError 404 as `read` does."""
        kept = self._files.pop(id, None)
        if kept is None:
            raise _no_file(id)
        _close(kept)
        return FileDeleted(id)

    def close(self) -> None:
        for id in list(self._files):
            self.delete(id)

    def _keep(self, id: str, kept: _Kept) -> None:
        self._files[id] = kept
        while sum(each.size for each in self._files.values()) > _KEPT * self.max_bytes:
            _close(self._files.popitem(last=False)[1])

    async def _parse(self, request: Request) -> FormData:
        if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise RequestError("A file must be sent as multipart/form-data.", status=415)
        limit = self.max_bytes + _FORM_BYTES
        if announced_length(request) > limit:
            raise self._too_large()
        try:
            pieces = self._limited(request, limit)
            return await MultiPartParser(request.headers, pieces, max_files=1, max_fields=_MOST_FIELDS).parse()
        except (MultiPartException, KeyError) as error:
            raise RequestError(f"The form is malformed: {error}.") from None

    async def _limited(self, request: Request, limit: int) -> AsyncGenerator[bytes, None]:
        received = 0
        async for piece in request.stream():
            received += len(piece)
            if received > limit:
                raise self._too_large()
            yield piece

    def _too_large(self) -> RequestError:
        return RequestError(
            f"The file is larger than {self.max_bytes >> 20} MiB (see --max-media-mib).",
            status=413,
            param="file",
            code="request_too_large",
        )


def _read(kept: _Kept) -> bytes | None:
    """None if it has been removed meanwhile."""
    with kept.lock:
        if kept.file.closed:
            return None
        kept.file.seek(0)
        return kept.file.read()


def _close(kept: _Kept) -> None:
    with kept.lock:
        kept.file.close()


def _no_file(id: str) -> RequestError:
    return RequestError(
        f"There is no file `{id}`, or it had to make room for others: upload it (again).",
        status=404,
        code="file_not_found",
    )
