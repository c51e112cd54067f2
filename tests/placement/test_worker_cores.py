"""A worker with cores of its own still knows what was configured, in which others' cores are named."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.worker import loop


def test_its_device_is_opened_before_it_leaves_the_others_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("there is one core")
    config = EngineConfig.of(placement=f"ep@{cores[0]}+d@{cores[1]}")
    spec = SimpleNamespace(config=config, instance=config.machine.workers.instances[-1], device="cuda", ranks=1)
    opened: list[str] = []

    def open_device(name: DeviceName, given: EngineConfig) -> Any:
        opened.extend(
            [name, *given.machine.threads_of]
        )  # as a GPU's device does; raises where other cores are not seen

    def confine(spec: Any) -> None:
        assert os.sched_getaffinity(0) == {cores[1]}
        raise InterruptedError

    monkeypatch.setattr(loop, "log_of_worker", lambda log_format, name: None)
    monkeypatch.setattr(loop, "open_device", open_device)
    monkeypatch.setattr(loop, "confine", confine)
    try:
        with pytest.raises(InterruptedError):
            loop.run(cast(Any, spec))
    finally:
        os.sched_setaffinity(0, cores)
    assert opened == ["cuda"]
