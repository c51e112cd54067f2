"""Upload files that the server gets before a run, and forgets after it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import msgspec

from unifiedserve.bench.client.connection import ASIDE
from unifiedserve.bench.client.delivery import media_type
from unifiedserve.bench.client.endpoint import message_of
from unifiedserve.errors import NO_JSON, ConfigError

_OTHER_WAYS = "choose --media file or --media http"


class _File(msgspec.Struct):
    id: str


@asynccontextmanager
async def uploaded(http: httpx.AsyncClient, path: str, files: Iterable[str]) -> AsyncIterator[dict[str, str]]:
    """Upload files to `path`, as OpenAI's API does; yield their ids by file, and delete them afterwards.

    Raises ConfigError if the server refuses one, or has no room for all of them.
    """
    ids: dict[str, str] = {}
    try:
        for file in files:
            ids[file] = await _upload(http, path, file)
        await _check_kept(http, path, ids)
        yield ids
    finally:
        for id in ids.values():
            with suppress(httpx.HTTPError):
                await http.delete(f"{path}/{id}", timeout=ASIDE)


async def _upload(http: httpx.AsyncClient, path: str, file: str) -> str:
    with open(file, "rb") as content:
        form = {"file": (Path(file).name, content, media_type(file))}
        try:
            response = await http.post(path, data={"purpose": "vision"}, files=form)
        except httpx.HTTPError as error:
            raise ConfigError(f"{file} cannot be uploaded: {error or type(error).__name__}") from error
    if response.is_error:
        raise ConfigError(
            f"{file} cannot be uploaded: status {response.status_code}: {message_of(response.content)}: {_OTHER_WAYS}"
        )
    try:
        return msgspec.json.decode(response.content, type=_File).id
    except NO_JSON as error:
        raise ConfigError(f"{response.url} gave no id of the file: {error}") from error


async def _check_kept(http: httpx.AsyncClient, path: str, ids: dict[str, str]) -> None:
    """Raise ConfigError if files had to make room for later ones: requests about them would fail."""
    for file, id in ids.items():
        try:
            response = await http.get(f"{path}/{id}")
        except httpx.HTTPError as error:
            raise ConfigError(f"{file} cannot be looked for: {error or type(error).__name__}") from error
        if response.is_error:
            raise ConfigError(f"the server has no room for {len(ids)} uploads: {file} had to make room: {_OTHER_WAYS}")
