"""What reads strangers' data in a running engine has given up what it does not need, and still reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from completions import tokens
from daemon import Daemon
from media import Clip, image_part, make_image, text_part, video_part

from unifiedserve.config import EngineConfig
from unifiedserve.engine import resources
from unifiedserve.engine.resources import check_sandbox
from unifiedserve.environment import environment_of_workers
from unifiedserve.errors import ConfigError
from unifiedserve.sandbox import missing

confined = pytest.mark.skipif(bool(missing()), reason=f"the kernel cannot confine {missing()}")


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@confined
@pytest.mark.daemon("the processes of an engine are looked at")
def test_what_decodes_media_and_tries_grammars_is_confined(daemon: Daemon, clips: Callable[[int], Clip]) -> None:
    choice: dict[str, Any] = {"structured_outputs": {"choice": ["yes", "no"]}}
    assert tokens(daemon, video_part(clips(8)), image_part(make_image(1, 60, 90)), text_part("What happens?"))
    assert tokens(daemon, text_part("Is it?"), extra_body={"return_token_ids": True, **choice})
    vision = daemon.engine.observation.worker_pids()["vision"]
    children = [process for process in psutil.Process().children() if "grammar_check" in " ".join(process.cmdline())]
    assert children
    for pid in (vision, *(child.pid for child in children)):
        status = status_of(pid)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    limits = Path(f"/proc/{vision}/limits").read_text().splitlines()
    assert not any(line.startswith("Max data size") and "unlimited" in line for line in limits)


def test_workers_do_not_have_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFIEDSERVE_API_KEYS", "sk-0123456789abcdef")
    monkeypatch.setenv("UNIFIEDSERVE_CLUSTER_KEY", "cluster 0123456789abcdef")
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    environment = environment_of_workers()
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert not any("0123456789abcdef" in value for value in environment.values())


def test_a_kernel_that_cannot(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(resources, "missing", lambda: ["files (Landlock)"])
    check_sandbox(EngineConfig.of(sandbox="off"))
    assert not caplog.records
    check_sandbox(EngineConfig())
    assert "cannot confine files (Landlock)" in caplog.text
    with pytest.raises(ConfigError, match=r"--sandbox require: this kernel cannot confine files \(Landlock\)"):
        check_sandbox(EngineConfig.of(sandbox="require"))
