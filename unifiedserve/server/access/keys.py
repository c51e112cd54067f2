"""Read API keys from a file or the environment. A look-up takes constant time."""

import hashlib
import hmac
import os
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import unquote

from starlette.datastructures import Headers

from unifiedserve.config import API_KEYS
from unifiedserve.errors import ConfigError

COOKIE = "unifiedserve-key"  # for the page: browsers send no headers of its own with events and pictures
_SHORTEST = 16  # characters
_BEARER = "bearer "
_KEY_HEADER = "x-api-key"  # Anthropic's clients send it


class Keys:
    """Hold the keys that there are, by digest. Without any keys, every caller is let in."""

    def __init__(self, path: str = "") -> None:
        """Read the keys; raises ConfigError as `reload`."""
        self._path = path
        self._names: dict[bytes, str] = {}
        self.reload()

    def __bool__(self) -> bool:
        return bool(self._names)

    def reload(self) -> None:
        """Read the keys again: of the file, a line each (`KEY` or `NAME KEY`), and of the environment.

        Raises ConfigError, and leaves the keys as they were, if there is something wrong with them.
        """
        lines = os.environ.get(API_KEYS, "").replace(",", "\n").splitlines()
        names = dict(_key(line, f"{API_KEYS}, key {number}") for number, line in _numbered(lines))
        if self._path:
            in_file = dict(_key(line, f"{self._path}:{number}") for number, line in _numbered(_read(self._path)))
            if not in_file:
                raise ConfigError(f"--api-key-file {self._path}: no keys in it")
            names |= in_file
        self._names = names

    def name_of(self, shown: bytes) -> str | None:
        """Return the name of the key with this digest; None if there is none."""
        found = [name for digest, name in self._names.items() if hmac.compare_digest(digest, shown)]
        return found[0] if found else None


def shown_digest(headers: Headers) -> bytes | None:
    """Return the digest of the key that a request shows; None if it shows none at all."""
    key = _shown(headers)
    return _digest(key) if key else None


def _shown(headers: Headers) -> str:
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip()
    if key := headers.get(_KEY_HEADER, "").strip():
        return key
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return unquote(cookie.value) if cookie else ""


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {path}: {error}") from error


def _numbered(lines: list[str]) -> list[tuple[int, str]]:
    stripped = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _key(line: str, where: str) -> tuple[bytes, str]:
    """Return a key's digest and its name. An unnamed one is called by the beginning of the digest."""
    *name, key = line.split()
    if len(name) > 1:
        raise ConfigError(f"{where}: a line is a key, or a name and a key")
    if len(key) < _SHORTEST or not key.isascii():
        raise ConfigError(f"{where}: a key has at least {_SHORTEST} characters, all of ASCII")
    digest = _digest(key)
    return digest, name[0] if name else digest.hex()[:8]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()
