"""Models of two GGUF files, language model and vision tower: all of a checkpoint comes back, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import user
from checkpoints import find_checkpoint
from gguf import GGMLQuantizationType as Kind
from gguf_files import write_gguf
from gguf_towers import write_tower
from processor_check import normalisation_for
from published_processors import PUBLISHED, write_published

from unifiedserve.config import EngineConfig
from unifiedserve.engine.checkpoint import load_checkpoint
from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, VideoInfo
from unifiedserve.models.gguf.folder import gguf_folder
from unifiedserve.models.gguf.tensors import GGUFTensors
from unifiedserve.models.registry import load_config, load_processor

FAMILIES = ["gemma3", "internvl", "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "smolvlm"]
SIZES = {"qwen3_vl": (256, 256)}  # of an image that neither the tiny checkpoints' rules nor those of files resize
#: what files cannot say, or what changes nothing
UNTOLD = {
    *("_name_or_path", "architectures", "dtype", "in_chans", "initializer_range", "pad_token_id", "spatial_patch_size"),
    *("transformers_version", "bos_token_id", "type", "_pad_token_id", "layer_types", "query_pre_attn_scalar"),
    *("head_dim", "max_window_layers", "tie_word_embeddings", "layer_scale_init_value", "eos_token_id"),
}
Make = Callable[..., Path]


def differences(ours: Any, theirs: Any, key: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the values that two configs do not share, by their keys."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted((ours.keys() | theirs.keys()) - UNTOLD)
        found = [differences(ours.get(each), theirs.get(each), each) for each in keys]
        return {name: pair for each in found for name, pair in each.items()}
    close = isinstance(ours, float) and theirs == pytest.approx(ours, rel=1e-6)
    return {} if close or ours == theirs else {key: (ours, theirs)}


@pytest.fixture
def make(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Write a family's two files, and return their checkpoint."""

    def files(family: str, **options: Any) -> Path:
        checkpoint = find_checkpoint(tmp_path_factory, family)
        write_gguf(tmp_path / "model.gguf", checkpoint, lambda name: Kind.F32)
        write_tower(tmp_path / "mmproj-model.gguf", checkpoint, **options)
        return checkpoint

    return files


def read(model: Path, cache: Path) -> GGUFTensors:
    folder = gguf_folder(model, cache)
    return GGUFTensors(folder, load_config(folder))


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_a_checkpoint_comes_back(make: Make, family: str, tmp_path: Path) -> None:
    checkpoint = make(family)
    folder = gguf_folder(tmp_path / "model.gguf", tmp_path / "cache")
    config = load_config(folder)
    assert differences(config.to_dict(), load_config(checkpoint).to_dict()) == {}
    ours, theirs = load_processor(folder), load_processor(checkpoint)
    plan = ours.plan_image(*SIZES.get(family, (100, 60)), MediaOptions())
    assert plan == theirs.plan_image(*SIZES.get(family, (100, 60)), MediaOptions())
    assert torch.equal(*(torch.stack(normalisation_for(each, "image")) for each in (ours, theirs)))
    question = [user("image", "What is this?")]
    assert ours.prompt(question, [plan]).token_ids == theirs.prompt(question, [plan]).token_ids


@pytest.mark.parametrize(("family", "published"), [("qwen2_5_vl", "Qwen2.5-VL"), ("qwen3_vl", "Qwen3-VL")])
def test_media_have_the_sizes_of_published_checkpoints(
    make: Make, family: str, published: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files do not tell them. Qwen3-VL's limits for videos are others than for images."""
    make(family)
    write_published(PUBLISHED[published], find_checkpoint(tmp_path_factory, family), tmp_path / "published")
    ours = load_processor(gguf_folder(tmp_path / "model.gguf", tmp_path / "cache"))
    theirs = load_processor(tmp_path / "published")
    for width, height in [(40, 30), (640, 360), (8000, 6000)]:
        image, video = (width, height, MediaOptions()), (VideoInfo(90, 30.0, 3.0, width, height), MediaOptions())
        assert ours.plan_image(*image) == theirs.plan_image(*image)
        assert ours.plan_video(*video) == theirs.plan_video(*video)


def test_letters_of_qwen_2_are_composed(make: Make, tmp_path: Path) -> None:
    """As its own tokenizer.json has it: an accent may be a character of its own."""
    checkpoint = make("qwen2_5_vl")
    write_gguf(tmp_path / "model.gguf", checkpoint, lambda name: Kind.F32, words="qwen2")
    tokenizer = load_processor(gguf_folder(tmp_path / "model.gguf", tmp_path / "cache")).chat.tokenizer
    assert tokenizer("e\u0301te\u0301")["input_ids"] == tokenizer("\u00e9t\u00e9")["input_ids"]


def test_no_block_has_windows_where_none_is_said_to(make: Make, tmp_path: Path) -> None:
    """As llama.cpp reads a pattern of 0."""
    make("qwen2_5_vl", vision__n_wa_pattern=0)
    vision = load_config(gguf_folder(tmp_path / "model.gguf", tmp_path / "cache")).vision_config
    assert vision.fullatt_block_indexes == list(range(vision.depth))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("kind", "old_names"), [(Kind.F16, False), (Kind.Q8_0, True)])
def test_values_are_those_of_the_file(
    make: Make, family: str, kind: Kind, old_names: bool, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Under the checkpoint's names, whatever their types, also of old files that mix up an MLP's two matrices."""
    checkpoint = make(family)
    values = write_tower(tmp_path / "mmproj-model.gguf", checkpoint, kind, old_names=old_names)
    source = read(tmp_path / "model.gguf", tmp_path / "cache")
    headers = {header.name: header.shape for header in source.headers()}
    seen = dict(source.read())
    assert seen.keys() == headers.keys()
    assert values.keys() < seen.keys()
    for name, value in values.items():
        assert headers[name] == list(value.shape)
        torch.testing.assert_close(seen[name], value, rtol=0, atol=1e-6)


def test_the_engine_finds_both_files(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make("qwen2_5_vl")
    found, processor, _ = load_checkpoint(EngineConfig.of(model=str(tmp_path / "model.gguf")))
    assert processor.visual_ids.keys() == {"image", "video"}
    (tmp_path / "mmproj-model.gguf").rename(tmp_path / "tower.gguf")
    named = EngineConfig.of(model=str(tmp_path / "model.gguf"), mmproj=str(tmp_path / "tower.gguf"))
    assert load_checkpoint(named)[0] != found
    with pytest.raises(ConfigError, match=r"a qwen2vl model needs its vision tower's file: give --mmproj"):
        load_checkpoint(EngineConfig.of(model=str(tmp_path / "model.gguf")))
    with pytest.raises(ConfigError, match=r"--mmproj is of \.gguf models"):
        load_checkpoint(EngineConfig.of(mmproj=str(tmp_path / "tower.gguf")))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"projector_type": "ldpv2"}, "the projector 'ldpv2' are not supported; those that are: gemma3, idefics3"),
        ({"projector_type": "gemma3"}, r"\(gemma3\) belongs to language models of the architecture gemma3, and model"),
        ({"vision__projection_dim": 64}, "makes tokens of 64 numbers, and model.gguf reads 192: it is another model's"),
        ({"vision__block_count": 3}, r"the model of its metadata has no place for v\.blk\.3"),
        ({"without": ["v.post_ln.weight"]}, r"it lacks v\.post_ln\.weight"),
    ],
)
def test_towers_that_are_refused(make: Make, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    make("qwen2_5_vl", **options)
    with pytest.raises(ConfigError, match=words) as caught:
        read(tmp_path / "model.gguf", tmp_path / "cache")
    assert "mmproj-model.gguf: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_refused(make: Make, tmp_path: Path) -> None:
    make("qwen2_5_vl")
    model, tower = tmp_path / "model.gguf", tmp_path / "mmproj-model.gguf"
    with pytest.raises(ConfigError, match=r"--mmproj needs a vision tower's file, and this is of 'qwen2vl'"):
        gguf_folder(model, tmp_path / "cache", str(model))
    (tmp_path / "cut.gguf").write_bytes(tower.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"cut\.gguf: not a readable GGUF file, or not all of one"):
        gguf_folder(model, tmp_path / "cache", str(tmp_path / "cut.gguf"))
    with pytest.raises(ConfigError, match=r"none\.gguf: No such file"):
        gguf_folder(model, tmp_path / "cache", str(tmp_path / "none.gguf"))
    (tmp_path / "other-mmproj.gguf").write_bytes(tower.read_bytes())
    with pytest.raises(ConfigError, match=r"several vision towers lie beside it \(mmproj-model\.gguf, other-mmproj"):
        gguf_folder(model, tmp_path / "cache")
