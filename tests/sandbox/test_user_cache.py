"""The cache is in the user's home, or where XDG says; a user without a home goes without."""

import pwd
from pathlib import Path

import pytest

from unifiedserve.kept_value import write_kept
from unifiedserve.user_cache import cache_folder


def test_it_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path("/home/somebody/.cache/unifiedserve")
    monkeypatch.setenv("XDG_CACHE_HOME", "/large/cache")
    assert cache_folder() == Path("/large/cache/unifiedserve")


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as any number."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    write_kept(cache_folder() / "value", None, 1)
    assert not cache_folder().exists()
