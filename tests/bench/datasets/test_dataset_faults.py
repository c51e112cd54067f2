"""Data sets that are not there, not whole or not what they should be are refused in one line, with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unifiedserve.bench.datasets.load import load
from unifiedserve.bench.datasets.registry import DATA_SETS
from unifiedserve.errors import ConfigError

POPE_ROW = {"question_id": 0, "image": "a.jpg", "text": "Is there a dog?", "label": "no"}


def refusal(name: str, folder: Path) -> str:
    """Return why a data set is refused."""
    with pytest.raises(ConfigError) as caught:
        load(name, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    assert "mlvu, mlvu-test, egoschema" in refusal("mvlu", tmp_path)


@pytest.mark.parametrize("name", DATA_SETS)
def test_folders_that_hold_nothing(tmp_path: Path, put: Any, name: str) -> None:
    assert refusal(name, tmp_path / "nowhere").endswith("nowhere: no such folder")
    assert refusal(name, tmp_path).endswith("is empty")
    file = put("readme.txt", "hello")
    assert refusal(name, file).endswith("readme.txt: is a file, not a folder")
    assert f"has no annotations of {name}; expected: {DATA_SETS[name].layout}" in refusal(name, tmp_path)


def test_another_data_set_is_recognised(tmp_path: Path, put: Any) -> None:
    put("json/action_count.json", [])
    assert "looks like mvbench, not mlvu; expected: MLVU/json/" in refusal("mlvu", tmp_path)
    put("coco_pope_random.json")
    assert "looks like mvbench or pope, not mlvu" in refusal("mlvu", tmp_path)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path, put: Any) -> None:
    put("coco_pope_random.json", "\ufeff" + json.dumps(POPE_ROW))
    put("val2014/a.jpg")
    assert len(load("pope", tmp_path).samples) == 1


def test_a_parquet_file_of_a_kind_that_cannot_be_read(
    tmp_path: Path, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def refuse(path: Path) -> None:
        raise pyarrow.ArrowNotImplementedError("Support for codec 'lzo' not built")

    put("videomme/test-00000.parquet", b"PAR1")
    monkeypatch.setattr(parquet, "ParquetFile", refuse)
    assert refusal("video-mme", tmp_path).endswith("Support for codec 'lzo' not built")


def test_missing_files_are_counted_and_named_or_skipped(tmp_path: Path, put: Any) -> None:
    rows = [POPE_ROW | {"question_id": number, "image": f"{number // 2}.jpg"} for number in range(12)]
    put("coco_pope_random.json", "\n".join(map(json.dumps, rows)))
    put("val2014/2.jpg")
    refused = refusal("pope", tmp_path)
    assert f"5 media files missing in {tmp_path}: val2014/0.jpg, val2014/1.jpg, val2014/3.jpg and 2 more" in refused
    assert "val2014/COCO_val2014_*.jpg; --skip-missing goes on" in refused
    read = load("pope", tmp_path, skip_missing=True)
    assert [sample.id for sample in read.samples] == ["random/4", "random/5"]
    assert len(read.missing) == 5
    assert len(load("pope", tmp_path, skip_missing=True, limit=1).samples) == 1
    (tmp_path / "val2014/2.jpg").unlink()
    with pytest.raises(ConfigError, match="nothing is left to ask"):
        load("pope", tmp_path, skip_missing=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('[{"a": 1}', "val.json: Input data was truncated"),
        ("{}", "val.json: Expected `array`, got `object`"),
        (b"\xff\xfe\x00", "val.json: JSON is malformed"),
        ("[]", "no rows of it in"),
        ([3], "val.json, row 1: Expected `object`, got `int`"),
        (
            [{"image": "a.jpg", "question": "?"}, {"image": 3, "question": "?"}],
            "row 2: Expected `str`, got `int` - at `$.image`",
        ),
        ([{"image": "a.jpg"}], "row 1: Object missing required field `question`"),
        ([{"image": "a.jpg", "question": "?"}] * 2, "val.json, row 2: id 'a' is that of val.json, row 1 too"),
    ],
    ids=["truncated", "no list", "binary", "no rows", "no object", "wrong type", "no field", "same id"],
)
def test_damaged_json_is_named_with_its_row(tmp_path: Path, put: Any, content: Any, reason: str) -> None:
    put("val.json", content)
    put("val/a.jpg")
    assert reason in refusal("vizwiz", tmp_path)


def test_damaged_lines_are_named(tmp_path: Path, put: Any) -> None:
    put("coco_pope_random.json", json.dumps(POPE_ROW) + "\n\n" + json.dumps(POPE_ROW)[:30])
    assert "coco_pope_random.json, row 3: Input data was truncated" in refusal("pope", tmp_path)


HEADER = "video,question,answer,qid,type,a0,a1,a2,a3,a4\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEADER + "7,how,zero,6,CH,a,b,c,d,e\n", "val.csv, row 1: Expected `int`, got `str` - at `$.answer`"),
        (HEADER + "7,how,0,6,CH,a,b\n", "val.csv, row 1: Expected `str`, got `null`"),
        (HEADER.replace(",qid", ""), None),
        (HEADER + '7,"how,0,6,CH,a,b,c,d,e\n', "val.csv, after line 1: unexpected end of data"),
        ((HEADER + "7,hów").encode("latin-1"), "val.csv: is no UTF-8 text"),
    ],
    ids=["no number", "too few columns", "header alone", "open quote", "encoding"],
)
def test_damaged_tables_are_named(tmp_path: Path, put: Any, content: str | bytes, reason: str | None) -> None:
    put("val.csv", content)
    put("map_vid_vidorID.json", {"7": "1/7"})
    put("NExTVideo/1/7.mp4")
    assert (reason or "no rows of it in") in refusal("nextqa", tmp_path)


def test_a_file_that_comes_with_the_annotations_is_asked_for(tmp_path: Path, put: Any) -> None:
    put("val.csv", HEADER)
    assert "map_vid_vidorID.json: cannot be read: No such file" in refusal("nextqa", tmp_path)
    put("questions.json", [])
    assert "has no subset_answers.json" in refusal("egoschema-subset", tmp_path)
    put("subset_answers.json", {"a": 7})
    assert "subset_answers.json: Expected `int` <= 4" in refusal("egoschema", tmp_path)


@pytest.mark.parametrize(
    "name", ["../../etc/" + "x" * 300, "/etc/nothing/here", "a\0b", "a\nb"], ids=["up", "absolute", "nul", "lines"]
)
def test_strange_names_of_media_are_only_missing(tmp_path: Path, put: Any, name: str) -> None:
    put("coco_pope_random.json", json.dumps(POPE_ROW | {"image": name}))
    assert "1 media file missing" in refusal("pope", tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
FILES = {
    "mlvu": "json/1_plotQA.json",
    "egoschema": "questions.json",
    "longvideobench": "lvb_val.json",
    "mvbench": "json/action_count.json",
    "vizwiz": "val.json",
    "textvqa": "TextVQA_0.5.1_val.json",
    "textcaps": "TextCaps_0.1_val.json",
    "pope": "coco_pope_random.json",
    "video-mme": "videomme/test.jsonl",
    "sharegpt-4o": "image_conversations/gpt-4o.jsonl",
    "mme": "OCR/1.txt",
}


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40) | json_values.map(lambda value: json.dumps([value]).encode()))
def test_no_content_raises_anything_else(
    tmp_path: Path, put: Callable[[str, Any], Path], name: str, content: bytes
) -> None:
    put(FILES[name], content)
    with pytest.raises(ConfigError):
        load(name, tmp_path)
