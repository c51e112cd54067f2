"""What `unifiedserve placement` prints: workers, memories and what does not fit, without starting anything."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from unifiedserve.cli.placement import run
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError


def drawn(checkpoint: Path, placement: str, **options: object) -> str:
    sizes = {"kv_cache_mib": 5, "patch_buffer_mib": 7, "visual_buffer_mib": 2, "visual_cache_mib": 1}
    given = {"model": str(checkpoint), "device": "cpu", "sandbox": "off", "placement": placement, **sizes, **options}
    console = Console(file=io.StringIO(), width=300)
    run(EngineConfig.of(**given), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_memory_is_a_single_sum(checkpoint: Path) -> None:
    text = drawn(checkpoint, "shared")
    assert "shared by all of them: language model " in text
    assert "KV cache 5 + patch buffer 7 + visual buffer 3 + queues 33 = " in text
    assert "mem0" not in text


def test_each_memory_has_its_own_sum(checkpoint: Path) -> None:
    lines = drawn(checkpoint, "v@mem2+e@mem0+p@mem1+d@mem1").splitlines()
    (first,) = (line for line in lines if line.startswith("mem0: "))
    assert "patch buffer 7 + visual buffer 3 = " in first
    assert first.startswith("mem0: encoder ")
    assert "KV cache" not in first
    assert "language model" not in first
    (second,) = (line for line in lines if line.startswith("mem1: "))
    assert second.startswith("mem1: language model ")
    assert "KV cache 5 + visual buffer 3 = " in second
    assert "encoder" not in second
    assert "mem2: nothing" in lines
    assert "shared by all of them: queues 41 MiB" in lines
    (vision,) = (line for line in lines if "vision" in line and "patch buffer" in line)
    assert "patch buffer of mem0 7" in vision


def test_all_memories_count(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match=r"KV cache of mem0 [\d,]+ .*KV cache of mem1 [\d,]+ .* MiB, but "):
        drawn(checkpoint, "vepd@mem0+vepd@mem1", kv_cache_mib=1 << 24)


def test_where_there_is_one_node_a_line_says_so(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unifiedserve.engine.resources.cores_by_node", lambda cores: {3: tuple(cores)})
    drawn(checkpoint, "shared", memories="numa")
    assert "--memories numa: the cores of this process belong to one NUMA node (node3), so there is one memory" in (
        caplog.text
    )
