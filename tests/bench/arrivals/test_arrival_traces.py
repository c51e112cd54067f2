"""Replay of traces: every layout, its quirks, parts of it at another pace, and files that are none."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.arrivals.traces import layouts
from unifiedserve.bench.arrivals.traces.row import Row
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.errors import ConfigError

LLM = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8\r\n"
    "2023-11-16 18:17:04.0319600,110,27"  # an equal time, and no end of the last line
)
LMM = (
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
    "2024-10-15T12:00:00.269Z,0,770,491\n"
    "2024-10-15T12:00:05.819Z,2,949,126\n"
)
SECONDS = "arrival_time,input_tokens,output_tokens\n0.0,770,491\n5.55,949,126\n"
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,0,1087,Conversation log\n"  # it failed
    "118,GPT-4,417,276,693,API log\n"
)
MOONCAKE = "".join(
    json.dumps({"timestamp": at, "input_length": tokens, "output_length": 4, "hash_ids": ids}) + "\n"
    for at, tokens, ids in ((0, 700, [0, 1]), (0, 900, [0, 2]), (3000, 512, [0]), (5999, 10, [3]))
)


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def shapes(path: Path) -> list[tuple[float, int, int, int]]:
    return [(row.at, row.input_tokens, row.output_tokens, row.images) for row in Trace(path).rows(0)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (LLM, [(0.0, 4808, 10, 0), (0.052, 3180, 8, 0), (0.052, 110, 27, 0)]),
        (LMM, [(0.0, 770, 491, 0), (5.55, 949, 126, 2)]),
        (SECONDS, [(0.0, 770, 491, 0), (5.55, 949, 126, 0)]),
        (BURSTGPT, [(0.0, 472, 18, 0), (113.0, 417, 276, 0)]),
        (MOONCAKE, [(0.0, 700, 4, 0), (0.0, 900, 4, 0), (3.0, 512, 4, 0), (5.999, 10, 4, 0)]),
    ],
    ids=["azure-llm", "azure-lmm", "seconds", "burstgpt", "mooncake"],
)
def test_every_layout_is_read_gzipped_or_not(
    text: str, rows: list[tuple[float, int, int, int]], tmp_path: Path
) -> None:
    assert shapes(written(tmp_path, text)) == rows
    zipped = tmp_path / "trace.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert shapes(zipped) == rows


@pytest.mark.parametrize("text", [LLM, SECONDS, MOONCAKE], ids=["azure-llm", "seconds", "mooncake"])
def test_blank_lines_are_skipped(text: str, tmp_path: Path) -> None:
    rows = shapes(written(tmp_path, text))
    assert shapes(written(tmp_path, "\n" + text.replace("\n", "\n\r\n") + "\n\n")) == rows


def test_blocks_of_a_prompt_are_kept(tmp_path: Path) -> None:
    rows = Trace(written(tmp_path, MOONCAKE)).rows(0)
    assert [row.blocks for row in rows] == [(0, 1), (0, 2), (0,), (3,)]


def test_rows_of_one_time_are_spread_up_to_the_next(tmp_path: Path) -> None:
    path = written(tmp_path, MOONCAKE)
    times = parse(f"trace:{path}?spread=3").rows(1)
    first, second, third, last = (row.at for row in times)
    assert 0 < first < second < 3 <= third < 5.999 <= last < 8.999
    assert [row.line for row in times] == [1, 2, 3, 4]
    assert [row.at for row in Trace(path, spread=3).rows(2)] != [first, second, third, last]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (LMM.splitlines()[0], "it has no requests"),
        (SECONDS + "5.5,1,1\n", "line 4: its time is 0.05 s before the one above: sort the file"),
        (SECONDS + "-1,1,1\n", "line 4: arrival_time must be zero or more"),
        (SECONDS + "nan,1,1\n", "line 4: arrival_time must be zero or more and finite, not nan"),
        (SECONDS + "7,-1,1\n", "line 4: input_tokens must be zero or more"),
        (SECONDS + "7,1.5,1\n", "line 4: input_tokens must be a whole number, not 1.5"),
        (SECONDS + "7,,1\n", "line 4: input_tokens must be a number, not ''"),
        (SECONDS + "7,1\n", "line 4: 2 columns instead of 3"),
        (LMM + "yesterday,0,1,1\n", "line 4: TIMESTAMP must be like 2024-10-15T12:00:00.269Z"),
        (LMM.replace("GeneratedTokens", "Tokens"), "looks like Azure LMM 2025, but has no column GeneratedTokens"),
        ("a,b\n1,2\n", "line 1: not a trace of a known layout (Azure LMM 2025, "),
        ("quantity,requests,percentile,approx_value\n", "it looks like percentiles"),
        ("<!DOCTYPE html><html></html>", "it looks like a web page"),
        ("version https://git-lfs.github.com/spec/v1\n", "it looks like a pointer of Git LFS"),
        (MOONCAKE + "{\n", "line 5: Input data was truncated"),
        (MOONCAKE + '{"timestamp": 6000, "input_length": 4, "output_length": 4}\n', "line 5: Object missing required"),
        (MOONCAKE.replace("5999", "-1"), "line 4: a number is negative"),
        (MOONCAKE.replace("[3]", "[3, 4]"), "line 4: 10 tokens do not fill 2 blocks"),
        (MOONCAKE.replace("5999", "2999"), "line 4: its time is 0.001 s before"),
    ],
)
def test_a_bad_file_gets_a_line_with_its_name(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Trace(path).rows(0)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_quotation_mark_that_is_not_closed_gets_the_line_where_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, SECONDS + '"7,1,1\n' + 30_000 * "7,1,1\n")
    with pytest.raises(ConfigError, match=r"line 4: field larger.*: is a quotation mark not closed\?"):
        Trace(path).rows(0)


def test_one_long_line_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1: not a trace of a known layout"):
        Trace(written(tmp_path, "a" * 200_000)).rows(0)


def test_a_gzip_file_cut_short_says_after_which_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    text = SECONDS + "".join(f"{6 + at},{at * 7919 % 5000},{at * 104729 % 300}\n" for at in range(5000))
    path.write_bytes(gzip.compress(text.encode())[:-2000])
    with pytest.raises(ConfigError, match=r"cut short after line \d{3,}: fetch it again"):
        Trace(path).rows(0)


@pytest.mark.parametrize("content", [b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage", b"\x89PNG\xff\xfe\x00"])
def test_files_that_are_no_text_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged or cut short|no text"):
        Trace(path).rows(0)


def test_a_path_without_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: No such file"):
        Trace(tmp_path / "nowhere").rows(0)
    with pytest.raises(ConfigError, match="Is a directory"):
        Trace(tmp_path).rows(0)


def test_more_requests_than_rows_are_refused(tmp_path: Path) -> None:
    trace = Trace(written(tmp_path, SECONDS))
    assert trace.times(2, 0).tolist() == [0.0, 5.55]
    with pytest.raises(ConfigError, match="2 rows for 3 requests"):
        trace.times(3, 0)


times = st.lists(st.integers(0, 10_000), min_size=1, max_size=30).map(lambda ms: [0.0, *sorted(m / 1000 for m in ms)])


@settings(max_examples=50)
@given(times, st.floats(0.01, 100), st.floats(0, 12), st.floats(0.001, 12), st.integers(1, 40))
def test_scale_and_cut_are_exact(at: list[float], scale: float, start: float, length: float, first: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        rows = [Row(at=time, input_tokens=1, output_tokens=1) for time in at]
        patch.setattr(layouts, "read", lambda path, seed: iter(rows))
        end = start + length
        expected = [(time - start) * scale for time in at if start <= time < end][:first]
        trace = Trace(Path("t"), scale=scale, start=start, end=end, first=first)
        if expected:
            assert [row.at for row in trace.rows(0)] == expected
        else:
            with pytest.raises(ConfigError, match="no requests"):
                trace.rows(0)


@settings(max_examples=50)
@given(times, st.floats(0.001, 20), st.integers(0, 100))
def test_spread_times_keep_their_order(at: list[float], spread: float, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        rows = [Row(at=time, input_tokens=number, output_tokens=1) for number, time in enumerate(at)]
        patch.setattr(layouts, "read", lambda path, seed: iter(rows))
        moved = Trace(Path("t"), spread=spread).rows(seed)
    assert [row.input_tokens for row in moved] == list(range(len(at)))
    assert all(0 <= new.at - old <= spread * 1.000001 for new, old in zip(moved, at, strict=True))
    assert all(np.diff([row.at for row in moved]) >= 0)


WINDOWS = "0,0,0,,0,0\n600,0.5,2.0,Gamma,0.25,8\n1200,0.25,0.7,Weibull,1.5,4.43\n"
SHAPES = {
    "text_tokens": "{50: 1.0}",
    "image_count": "{1: 0.5, 3: 0.5}",
    "image_tokens": "{100: 0.75, 400: 0.25}",
    "output_tokens": "{10: 0.5, 20: 0.5}",
}


def archive(path: Path, windows: str = WINDOWS, shapes: dict[str, str] = SHAPES) -> Path:
    files = {"chunk-0-trace.csv": windows, "chunk-0-dataset.json": json.dumps({"0": shapes})}
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"folder/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_servegen_rows_have_the_windows_rates_and_the_shapes(tmp_path: Path) -> None:
    trace = Trace(archive(tmp_path / "servegen.tar.gz"))
    rows = trace.rows(1)
    assert len(rows) == 300 + 150
    assert {row.images for row in rows} == {1, 3}
    assert all(len(row.image_tokens) == row.images for row in rows)
    assert all(row.input_tokens == 50 + sum(row.image_tokens) for row in rows)
    assert rows == trace.rows(1) != trace.rows(2)


def test_servegen_bursts_as_its_windows_say(tmp_path: Path) -> None:
    windows = "0,20,2.0,Gamma,0.25,0.2\n"
    gaps = np.diff(Trace(archive(tmp_path / "s.tar.gz", windows)).times(12_000, 1))
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.06)


@pytest.mark.parametrize(
    ("windows", "shapes", "message"),
    [
        ("0,0.5,1,Zeta,1,1\n", SHAPES, "chunk-0-trace.csv, line 1: the pattern must be Gamma or Weibull"),
        ("0,0.5\n", SHAPES, "line 1: 2 columns instead of 6"),
        ("0,nan,1,Gamma,1,1\n", SHAPES, "line 1 must be zero or more and finite"),
        (WINDOWS, {**SHAPES, "image_count": "{1: 0}"}, "chunk-0-dataset.json: image_count is unreadable"),
        (WINDOWS, {**SHAPES, "image_count": "import os"}, "chunk-0-dataset.json: "),
        (WINDOWS, {}, "chunk-0-dataset.json: "),
    ],
)
def test_a_bad_archive_is_refused(windows: str, shapes: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Trace(archive(tmp_path / "s.tar.gz", windows, shapes)).rows(0)
    assert message in str(caught.value)


def test_an_archive_of_something_else_or_cut_short_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        tar.add(written(tmp_path, "x", "file"), "file")
    with pytest.raises(ConfigError, match=r"without chunk-0-trace\.csv is no ServeGen data"):
        Trace(other).rows(0)
    whole = archive(tmp_path / "s.tar.gz", WINDOWS * 300)
    whole.write_bytes(whole.read_bytes()[:-30])
    with pytest.raises(ConfigError, match="damaged or cut short"):
        Trace(whole).rows(0)


@pytest.mark.parametrize(
    ("name", "rows", "seconds"),
    [
        ("AzureLLMInferenceTrace_code.csv.gz", 8819, 3435.948056),
        ("AzureLLMInferenceTrace_conv.csv.gz", 19366, 3501.721937),
        ("azure_lmm_2025_first127s.csv", 313, 126.745),
        ("azure_lmm_2025_head_tail.csv", 10, 604799.695),
        ("mooncake_conversation_trace.jsonl.gz", 12031, 3536.999),
        ("mooncake_synthetic_trace.jsonl.gz", 3993, 1022.025),
    ],
)
def test_published_traces_are_read_whole(name: str, rows: int, seconds: float, data_folder: Path) -> None:
    path = data_folder / "traces" / name
    if not path.exists():
        pytest.skip(f"no {path}")
    read = Trace(path).rows(0)
    assert len(read) == rows
    assert read[-1].at == pytest.approx(seconds, abs=1e-6)


def test_an_hour_of_servegen_has_its_rate(data_folder: Path) -> None:
    path = data_folder / "traces" / "servegen_mm-image.tar.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with tarfile.open(path) as tar:
        texts = [tar.extractfile(member).read().decode() for member in tar if member.name.endswith(".csv")]  # type: ignore[union-attr]
    expected = sum(600 * float(row.split(",")[1]) for text in texts for row in text.splitlines()[:1])
    rows = Trace(path, end=590.0).rows(0)
    assert len(rows) == pytest.approx(expected * 590 / 600, rel=0.03)
