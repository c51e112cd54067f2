"""Which checkpoints make embeddings, and how."""

import json
from pathlib import Path
from typing import Any

import pytest

from unifiedserve.errors import ConfigError
from unifiedserve.models.pooling import Pooling, load_pooling
from unifiedserve.models.registry import load_config

POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALIZE = {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
LAST = {"pooling_mode_cls_token": False, "pooling_mode_lasttoken": True}


def write(directory: Path, modules: Any, pooling: dict[str, Any], **config: Any) -> Path:
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("modules", "pooling", "config", "expected"),
    [
        ([TRANSFORMER, POOLING, NORMALIZE], LAST, {}, Pooling("lasttoken", True)),
        ([TRANSFORMER, POOLING], {"pooling_mode_mean_tokens": True}, {}, Pooling("mean", False)),
        ([TRANSFORMER, POOLING], {"pooling_mode": "cls"}, {}, Pooling("cls", False)),
        ([TRANSFORMER, POOLING], LAST, {"is_matryoshka": True}, Pooling("lasttoken", False, None)),
        ([TRANSFORMER, POOLING], LAST, {"matryoshka_dimensions": [8, 4]}, Pooling("lasttoken", False, (8, 4))),
        ([TRANSFORMER], {}, {}, None),
    ],
)
def test_modules_tell(tmp_path: Path, modules: Any, pooling: Any, config: Any, expected: Pooling | None) -> None:
    assert load_pooling(write(tmp_path, modules, pooling, **config)) == expected


def test_a_model_without_modules_generates(tmp_path: Path) -> None:
    assert load_pooling(tmp_path) is None


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        ([TRANSFORMER, POOLING, {"type": "sentence_transformers.models.Dense"}], LAST, "Dense"),
        ([TRANSFORMER, POOLING], {"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
        ([TRANSFORMER, POOLING], LAST | {"pooling_mode_mean_tokens": True}, "pooling_mode_mean_tokens"),
        ([TRANSFORMER, POOLING], {}, "no mode"),
        ({"a": 1}, LAST, "array"),
    ],
)
def test_others_are_refused(tmp_path: Path, modules: Any, pooling: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_pooling(write(tmp_path, modules, pooling))


def test_tokens_that_see_later_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is_causal"):
        load_config(write(tmp_path, [], {}, model_type="qwen2", is_causal=False))
