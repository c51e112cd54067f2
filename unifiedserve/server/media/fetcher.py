"""Fetch the bytes behind a media URL: inline (data:), local (file:), remote (http:, https:) or uploaded (an id)."""

import asyncio
import binascii
import mimetypes
import os
from copy import copy
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import MediaKind, MediaOptions
from unifiedserve.server.access.caller import NOBODY, Caller
from unifiedserve.server.media.base64_text import decoded_bytes
from unifiedserve.server.media.budget import MediaBudget, RequestBudget
from unifiedserve.server.media.downloads import Downloads
from unifiedserve.server.media.file_store import FILE_ID, FileStore
from unifiedserve.server.media.frame_list import FRAME_TYPES, MOST_FRAMES, video_of_frames

_HEAD = 1024  # characters of a URL that say what it leads to


class MediaFetcher:
    """Turn media URLs into inputs of the engine, within the limits of the configuration."""

    def __init__(self, config: EngineConfig, files: FileStore, caller: Caller = NOBODY) -> None:
        """Create one for the files of a caller."""
        self._files = files
        self._caller = caller
        self.max_bytes = config.media.max_media_mib * MIB
        self.budget = MediaBudget(config)
        self._root = config.media.allowed_local_media_path
        self._downloads = Downloads(config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._downloads.close()

    def of(self, caller: Caller) -> Self:
        """Return one for the files of another caller, which downloads as this one does."""
        other = copy(self)
        other._caller = caller
        return other

    def kind_of(self, url: str, name: str | None) -> MediaKind:
        """Return the kind at a URL, by its type or its name. Else the request's word counts.

        Raises RequestError: 404 for a file that is not there, 400 if that is neither an image nor a video.
        """
        if url.startswith(FILE_ID):
            facts = self._files.facts(url, self._caller)
            return _kind(facts.media_type, facts.name)
        return _kind(mimetypes.guess_type(url[:_HEAD])[0] or "", name or "")

    async def fetch(
        self, kind: MediaKind, url: str, options: MediaOptions, budget: RequestBudget | None = None
    ) -> MediaInput:
        """Return what is at a URL, whose bytes count in the budget of its request.

        Raises RequestError 400 if the URL is malformed, forbidden, unreachable or too large, and as the budget does.
        """
        url = url.strip()
        begin = url[:_HEAD].lower()
        scheme = begin.partition(":")[0]
        held = budget or self.budget.of_request()
        take = partial(held.take, kind)
        source = MediaInput(kind=kind, options=options, held=held)
        if scheme == "data":
            take(min(len(url) // 4 * 3, self.max_bytes))
            if kind == "video" and begin.startswith(FRAME_TYPES, len("data:")):
                return video_of_frames(source, await asyncio.to_thread(self._inline_frames, url))
            source.data = await asyncio.to_thread(self._inline, kind, url)
        elif scheme == "file":
            source.path = await asyncio.to_thread(self._local, url)
        elif scheme in ("http", "https"):
            downloader = await self._downloads.downloader()
            source.data = await downloader.fetch(url, take)
        elif url.startswith(FILE_ID):
            source.data = await self._files.read(url, self._caller, take)
        else:
            raise _invalid(
                "A media URL must begin with data:, http://, https:// or file://, or be the id of an uploaded file, "
                f"which begins with {FILE_ID}."
            )
        return source

    def _inline_frames(self, url: str) -> list[bytes]:
        """Return the images that a data: URL has one after the other, with commas between them."""
        payload = _payload("video", url)
        if payload.count(",") >= MOST_FRAMES:
            raise _invalid(f"A video has at most {MOST_FRAMES} images.")
        frames = [self._decoded("video", frame) for frame in payload.split(",")]
        if sum(map(len, frames)) > self.max_bytes:
            raise self._too_large("video")
        return frames

    def _inline(self, kind: MediaKind, url: str) -> bytes:
        return self._decoded(kind, _payload(kind, url))

    def _decoded(self, kind: MediaKind, payload: str) -> bytes:
        try:
            data = decoded_bytes(unquote(payload) if "%" in payload else payload, self.max_bytes + 1)
        except (binascii.Error, ValueError) as error:
            raise _invalid(f"The data: URL is not valid base64: {error}.") from None
        if not data:
            raise _invalid("The data: URL is empty.")
        if len(data) > self.max_bytes:
            raise self._too_large(kind)
        return data

    def _too_large(self, kind: MediaKind) -> RequestError:
        return _invalid(f"The {kind} is larger than {self.max_bytes} bytes (see --max-media-mib).")

    def _local(self, url: str) -> str:
        if not self._root:
            raise _invalid("file:// URLs are refused: the server runs without --allowed-local-media-path.")
        try:
            parts = urlsplit(url)
            path = Path(unquote(parts.path, errors="strict")).resolve()
            inside = path.is_relative_to(Path(self._root).resolve())
            readable = inside and path.is_file() and os.access(path, os.R_OK)
        except (OSError, ValueError, RuntimeError):
            raise _invalid("Not a valid file:// URL.") from None
        if parts.netloc not in ("", "localhost") or not inside:
            raise _invalid("The file:// URL is outside --allowed-local-media-path.")
        if not readable:
            raise _invalid("The file:// URL names no readable file.")
        return str(path)


def _payload(kind: MediaKind, url: str) -> str:
    """Return what follows the head of a data: URL; raise RequestError 400 for a head that does not fit."""
    head, comma, payload = url[len("data:") :].partition(",")
    media_type, *parameters = head.lower().split(";")
    if not comma or "base64" not in (parameter.strip() for parameter in parameters):
        raise _invalid("A data: URL must have the form data:TYPE;base64,DATA.")
    if media_type.partition("/")[0] in {"image", "video"} - {kind}:
        raise _invalid(f"The data: URL has the type {media_type}, but its part is for {kind}s.")
    return payload


def _kind(media_type: str, name: str) -> MediaKind:
    """Return what a MIME type says, or else a file's name or URL; raise RequestError 400 if neither says it."""
    guessed, _ = mimetypes.guess_type(name)
    for known in (media_type, guessed or ""):
        match known.lower().partition("/")[0]:
            case "image" | "video" as kind:
                return kind
    raise RequestError(
        f"By its type ({media_type or guessed or 'unknown'}) the file is neither an image nor a video: if it is one, "
        "send it in a part for images or for videos.",
        code="unsupported_file",
    )


def _invalid(message: str) -> RequestError:
    return RequestError(message, code="invalid_media_url")
