"""The loaders read real rows of the data sets, where there are some beside the checkout; videos are empty files."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from unifiedserve.bench.datasets.load import load
from unifiedserve.bench.datasets.prompts import to_requests
from unifiedserve.bench.datasets.sample import DataSet
from unifiedserve.errors import ConfigError


@pytest.fixture
def read(data_folder: Path, tmp_path: Path, put_media: Any) -> Any:
    """Return a function that loads the rows of a data set with all media there."""

    def loaded(name: str, folder: str) -> DataSet:
        if not (data_folder / "datasets" / folder).is_dir():
            pytest.skip(f"no rows of {folder} in {data_folder}")
        copy = Path(
            shutil.copytree(data_folder / "datasets" / folder, tmp_path / folder, copy_function=shutil.copyfile)
        )
        with pytest.raises(ConfigError, match="missing"):
            load(name, copy)
        put_media(name, copy)
        return load(name, copy)

    return loaded


@pytest.mark.parametrize(
    ("name", "folder", "samples", "unusable", "answered"),
    [
        ("mlvu", "MLVU", 360, 3, 320),
        ("egoschema", "EgoSchema", 20, 0, 0),
        ("longvideobench", "LongVideoBench", 4, 0, 4),
        ("nextqa", "NExT-QA", 300, 0, 300),
        ("activitynet-qa", "ActivityNet-QA", 300, 0, 0),
    ],
)
def test_real_rows(read: Any, name: str, folder: str, samples: int, unusable: int, answered: int) -> None:
    data_set = read(name, folder)
    assert (len(data_set.samples), len(data_set.unusable)) == (samples, unusable)
    assert sum(sample.right is not None for sample in data_set.samples) == answered
    assert len(to_requests(data_set.samples, max_tokens=8)) == samples


def test_rows_of_the_shape_of_video_mme(data_folder: Path, put: Any, put_media: Any, tmp_path: Path) -> None:
    rows = data_folder / "datasets" / "Video-MME" / "synthetic_rows.jsonl"
    if not rows.exists():
        pytest.skip(f"no {rows}")
    put("videomme/test.jsonl", rows.read_bytes())
    put_media("video-mme", tmp_path)
    samples = load("video-mme", tmp_path).samples
    assert [sample.task for sample in samples] == ["short", "short", "short", "medium", "long"]
    assert [sample.right for sample in samples] == [2, 0, 1, 3, 0]


def test_a_row_of_mvbench(data_folder: Path, put: Any, tmp_path: Path) -> None:
    row = data_folder / "datasets" / "MVBench" / "example_row_action_antonym.json"
    if not row.exists():
        pytest.skip(f"no {row}")
    put("json/action_antonym.json", row.read_bytes())
    put("video/ssv2_video/166583.webm")
    (sample,) = load("mvbench", tmp_path).samples
    assert sample.choices[sample.right or 0] == "Piling something up"
