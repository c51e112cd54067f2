"""A start that does not fit in memory is refused, also where shared memory has no limit of its own."""

from types import SimpleNamespace

import pytest

from unifiedserve.engine.resources import check_memory
from unifiedserve.errors import ConfigError


def test_shared_memory_without_a_limit_has_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a file system, of podman's --shm-size=0, has no blocks, neither free nor taken."""
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_blocks=0, f_bfree=0, f_bavail=0, f_frsize=4096))
    check_memory({"KV cache": 1 << 20}, workers=0)
    with pytest.raises(ConfigError, match=r"not enough memory: KV cache 1,073,741,824 = 1,073,741,824 MiB"):
        check_memory({"KV cache": 1 << 50}, workers=0)
