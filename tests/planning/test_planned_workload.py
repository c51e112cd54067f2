"""Traces and workloads become requests with sizes, at one a second; what lacks something is told in a line."""

import itertools
from pathlib import Path

import pytest

from unifiedserve.errors import ConfigError
from unifiedserve.planning.workload import read_workload

LMM = """TIMESTAMP,NumImages,ContextTokens,GeneratedTokens
2024-10-15T12:00:00.000Z,0,500,20
2024-10-15T12:00:04.000Z,1,1056,30
2024-10-15T12:00:08.000Z,2,2080,1
"""
LLM = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,374,44\n2023-11-16 18:17:05.97,396,109\n"


def written(folder: Path, text: str) -> str:
    path = folder / "trace.csv"
    path.write_text(text)
    return str(path)


def test_a_trace_has_its_own_sizes_and_pattern(tmp_path: Path) -> None:
    found = read_workload(written(tmp_path, LMM), 100, 0)
    assert found.exact
    assert found.times == (0.0, 1.0, 2.0)  # every four seconds, at one a second
    assert [each.output_tokens for each in found.requests] == [20, 30, 1]
    assert [len(each.pixels) for each in found.requests] == [0, 1, 2]
    assert found.requests[0].text_tokens == 500
    for request, tokens in zip(found.requests, (500, 1056, 2080), strict=True):
        visual = sum(round(pixels / (28 * 28)) for pixels in request.pixels)
        assert request.text_tokens + visual == pytest.approx(tokens, rel=0.02)


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    assert len(read_workload(written(tmp_path, LMM) + "?from=2&first=2", 100, 0).requests) == 2
    assert len(read_workload(written(tmp_path, LMM), 2, 0).requests) == 2


def test_a_workload_is_drawn_with_its_seed() -> None:
    found, again, other = (read_workload("mixed", 40, seed) for seed in (0, 0, 1))
    assert found == again != other
    assert {"text", "image", "video-1m"} <= {each.kind for each in found.requests}
    assert found.times[-1] == pytest.approx(39)  # one a second
    gaps = [after - before for before, after in zip(found.times, found.times[1:], strict=False)]
    bursts = read_workload("mixed", 40, 0, cv=4).times
    assert max(after - before for before, after in itertools.pairwise(bursts)) > max(gaps)


def test_texts_alone_are_planned_on_demand_only(tmp_path: Path) -> None:
    path = written(tmp_path, LLM)
    with pytest.raises(ConfigError, match=r"NumImages .* --texts-only"):
        read_workload(path, 100, 0)
    assert len(read_workload(path, 100, 0, texts_only=True).requests) == 2


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("mixd", "no such file, and no such workload; those are .*mixed"),
        ("sessions", "several turns"),
    ],
)
def test_what_cannot_be_planned_by_name(trace: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_workload(trace, 30, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LMM.replace("GeneratedTokens", "Answer"), "no column GeneratedTokens"),
        ("\n".join(LMM.splitlines()[:2]) + "\n", "no rate"),
        ("when,what\n1,2\n", "not a trace of a known layout"),
    ],
)
def test_traces_that_lack_something(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_workload(written(tmp_path, text), 100, 0)
