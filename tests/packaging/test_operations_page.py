"""What docs/operations.md names is there."""

import re

import pytest
from project_files import OPTIONS, REPOSITORY
from prometheus_client.parser import text_string_to_metric_families

from unifiedserve.observe.metrics import Metrics
from unifiedserve.server.app import OF_AN_ENGINE

PAGE = (REPOSITORY / "docs" / "operations.md").read_text()
OF_OTHERS = {"--shm-size", "--ipc", "--gpus", "--time", "--signal", "--help", "--restart", "--clear"}


class Engine:
    """What metrics look at, with a figure for everything."""

    target_between_tokens = 0.1

    def worker_requests(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("decode", "decode"): (3, 1)}

    def stages(self) -> dict[str, tuple[int, int]]:
        return {"decode": (1, 2)}

    def buffers(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("mem0", "kv"): (1, 2), ("mem0", "patch"): (1, 2), ("mem0", "visual"): (1, 2)}

    def peaks(self) -> dict[tuple[str, str], int]:
        return {("mem0", "kv"): 1}

    cached = peaks

    def memory(self) -> dict[str, int]:
        return {"weights": 1}

    role_changes = 0
    in_flight = waiting = 1
    page_tokens = 16

    def hosts(self) -> dict[str, int]:
        return {"encode": 2}

    def silences(self) -> dict[str, float]:
        return {"vision": 1.5}

    def held(self) -> tuple[float, float]:
        return (0.5, 0.1)


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Return the names of all series."""
    metrics = Metrics()
    metrics.bind(Engine())
    metrics.stage_time("decode", "run", 1.0)
    metrics.stage_time("decode", "queue", 1.0)
    metrics.request_finished("stop", 1.0, 1, 1)
    return {
        sample.name for family in text_string_to_metric_families(metrics.text().decode()) for sample in family.samples
    }


def test_every_metric_exists(known: set[str]) -> None:
    named = set(re.findall(r"unifiedserve:\w+", PAGE))
    assert len(named) > 10
    assert named <= known


def test_every_option_exists() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert "--drain-timeout" in named
    assert named - OF_OTHERS <= OPTIONS


def test_every_endpoint_exists() -> None:
    served = {endpoint.path for endpoint in OF_AN_ENGINE}
    named = set(re.findall(r"`(/(?:v1/\w+|health|ready|metrics|debug/\w+))`", PAGE))
    assert {"/health", "/ready", "/metrics"} <= named <= served


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(packaging/[^`]+)`", PAGE))))
def test_every_file_exists(path: str) -> None:
    assert (REPOSITORY / path).exists()
