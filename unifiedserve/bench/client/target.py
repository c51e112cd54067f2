"""Identify the server that is measured, and what it serves."""

import httpx
import msgspec

from unifiedserve.bench.client.dialects import DIALECTS, Dialect, dialect_named
from unifiedserve.errors import NO_JSON, ConfigError


class _Model(msgspec.Struct):
    id: str
    owned_by: str = ""


class _Models(msgspec.Struct):
    data: list[_Model]


class _Version(msgspec.Struct):
    version: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a server's model, by its name in requests; what the server understands; and its version, if it tells."""

    model: str
    dialect: Dialect
    version: str | None = None


async def find_target(http: httpx.AsyncClient, model: str = "", dialect: str = "") -> Target:
    """Return what the server says of itself, or what is given instead of it.

    Raises ConfigError if it cannot be reached, is no such server, or does not serve `model`.
    """
    served = await _models(http)
    chosen = served[0] if not model else next((each for each in served if each.id == model), None)
    if chosen is None:
        raise ConfigError(f"{http.base_url} serves {', '.join(each.id for each in served)}, not {model}")
    spoken = dialect_named(dialect) if dialect else DIALECTS.get(chosen.owned_by.lower(), DIALECTS["openai"])
    return Target(model=chosen.id, dialect=spoken, version=await _version(http))


async def _models(http: httpx.AsyncClient) -> list[_Model]:
    try:
        response = await http.get("v1/models")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"{http.base_url} cannot be reached: {error or type(error).__name__}") from error
    if not response.is_success:
        raise ConfigError(f"{response.url} answered {response.status_code}: is this an OpenAI-compatible server?")
    try:
        models = msgspec.json.decode(response.content, type=_Models).data
    except NO_JSON as error:
        raise ConfigError(f"{response.url} gave no list of models: {error}") from error
    if not models:
        raise ConfigError(f"{response.url}: the list of models is empty")
    return models


async def _version(http: httpx.AsyncClient) -> str | None:
    try:
        return msgspec.json.decode((await http.get("version")).content, type=_Version).version
    except (httpx.HTTPError, *NO_JSON):
        return None
