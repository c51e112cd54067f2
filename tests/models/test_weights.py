"""Weights in shared memory: every byte, in place, with clear errors."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from model_loop import make_adapter
from safetensors.torch import load_file, save_file

from ipc_buffers import Memory, list_arenas
from unifiedserve.device import CPU
from unifiedserve.errors import ConfigError
from unifiedserve.memory import memory_plan
from unifiedserve.memory import weights as weights_module
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.memory.weights import attach_weights, load_weights
from unifiedserve.models.adapters import load_adapter
from unifiedserve.placement import Network


def copy(checkpoint: Path, target: Path) -> Path:
    return Path(shutil.copytree(checkpoint, target))


def shard(directory: Path, parts: int) -> None:
    """Rewrite the checkpoint's weights as several files with an index."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    weight_map = {}
    for part in range(parts):
        name = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        chosen = {key: tensors[key] for key in sorted(tensors)[part::parts]}
        save_file(chosen, directory / name)
        weight_map |= dict.fromkeys(chosen, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_tensor_arrives(dtype: torch.dtype, checkpoint: Path, arena_name: str) -> None:
    load_weights(checkpoint, arena_name, dtype)
    stored = load_file(checkpoint / "model.safetensors")
    attached = attach_weights(arena_name)
    assert attached.keys() == stored.keys()
    for name, tensor in attached.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, stored[name].to(dtype))
        assert tensor.data_ptr() % 64 == 0


def test_attaching_copies_nothing(checkpoint: Path, arena_name: str) -> None:
    memory = load_weights(checkpoint, arena_name, torch.float32)
    first, second = attach_weights(arena_name), attach_weights(arena_name)
    CPU.view(memory).zero_()  # those who attach may only read
    for attached in (first, second):
        assert not any(tensor.any() for tensor in attached.values())


def test_the_model_runs_on_the_arena_itself(checkpoint: Path, arena_name: str) -> None:
    memory = load_weights(checkpoint, arena_name, torch.float32)
    attached = attach_weights(arena_name)
    start = min(tensor.data_ptr() for tensor in attached.values())
    adapter = load_adapter(checkpoint, attached, torch.float32)
    parameters = dict(adapter.model.named_parameters())
    assert len(parameters) == len(attached)
    for name, parameter in parameters.items():
        assert start <= parameter.data_ptr() < start + memory.nbytes, name
        assert not parameter.requires_grad
    assert not [name for name, buffer in adapter.model.named_buffers() if buffer.is_meta]


def test_integers_keep_their_type(tmp_path: Path, arena_name: str) -> None:
    tensors = {"ids": torch.arange(6).view(2, 3), "flags": torch.tensor([True, False]), "one": torch.tensor(2.5)}
    save_file(tensors, tmp_path / "x.safetensors")
    load_weights(tmp_path, arena_name, torch.bfloat16)
    attached = attach_weights(arena_name)
    assert torch.equal(attached["ids"], tensors["ids"])
    assert torch.equal(attached["flags"], tensors["flags"])
    assert attached["one"].shape == ()
    assert attached["one"] == 2.5


@pytest.mark.parametrize(("dtype", "columns"), [(torch.bfloat16, 27), (torch.float32, 26), (torch.bfloat16, 24)])
def test_rows_of_a_towers_matrix_are_aligned(dtype: torch.dtype, columns: int, tmp_path: Path, arena_name: str) -> None:
    name, other = "visual.blocks.3.mlp.down_proj.weight", "model.layers.3.mlp.down_proj.weight"
    tensors = {name: torch.randn(5, columns), other: torch.randn(5, columns)}
    save_file(tensors, tmp_path / "x.safetensors")
    memory = load_weights(tmp_path, arena_name, dtype)
    attached = attach_weights(arena_name)
    assert all(torch.equal(attached[each], tensor.to(dtype)) for each, tensor in tensors.items())
    assert attached[other].is_contiguous()
    weight = attached[name]
    row = weight.stride(0)
    assert row * dtype.itemsize % 16 == 0
    assert row - columns < 16 // dtype.itemsize
    assert torch.equal(weight.as_strided((5, row), (row, 1))[:, columns:], torch.zeros(5, row - columns, dtype=dtype))
    assert memory.nbytes == weights_module.weights_bytes(SafetensorsFiles(tmp_path), dtype)


def test_shards(checkpoint: Path, tmp_path: Path, arena_name: str) -> None:
    directory = copy(checkpoint, tmp_path / "sharded")
    shard(directory, 3)
    load_weights(directory, arena_name, torch.bfloat16)
    attached, stored = attach_weights(arena_name), load_file(checkpoint / "model.safetensors")
    assert attached.keys() == stored.keys()
    assert all(torch.equal(attached[name], tensor) for name, tensor in stored.items())


def test_no_weights(checkpoint: Path, tmp_path: Path, arena_name: str) -> None:
    directory = copy(checkpoint, tmp_path / "empty")
    (directory / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no \.safetensors file"):
        load_weights(directory, arena_name, torch.float32)


def test_a_missing_shard(checkpoint: Path, tmp_path: Path, arena_name: str) -> None:
    directory = copy(checkpoint, tmp_path / "sharded")
    shard(directory, 3)
    (directory / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ConfigError, match="does not hold: model-00002-of-00003"):
        load_weights(directory, arena_name, torch.float32)


@pytest.mark.parametrize("damage", ["truncated", "not safetensors"])
def test_corrupt_file(damage: str, checkpoint: Path, tmp_path: Path, arena_name: str) -> None:
    directory = copy(checkpoint, tmp_path / "corrupt")
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100_000] if damage == "truncated" else b"a text file")
    with pytest.raises(ConfigError, match=r"model\.safetensors: not a readable safetensors file"):
        load_weights(directory, arena_name, torch.float32)
    assert arena_name not in {arena.name for arena in list_arenas()}


def test_too_little_shared_memory(checkpoint: Path, arena_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = []

    class Oversized:
        @staticmethod
        def create(name: str, size: int, place: str, manifest: bytes) -> Memory:
            needed.append(size)
            return Memory.create(name, 2**45, place, manifest)

    monkeypatch.setattr(memory_plan, "Memory", Oversized)
    with pytest.raises(ConfigError, match=r"the weights need \d+ MiB of shared memory") as caught:
        load_weights(checkpoint, arena_name, torch.float32)
    assert f"{needed[0] / 2**20:,.0f} MiB" in str(caught.value)


def test_the_arena_goes_when_loading_fails(checkpoint: Path, arena_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(files: SafetensorsFiles) -> None:
        raise MemoryError

    monkeypatch.setattr(SafetensorsFiles, "read", fail)
    with pytest.raises(MemoryError):
        load_weights(checkpoint, arena_name, torch.float32)
    assert arena_name not in {arena.name for arena in list_arenas()}


def test_missing_tensors_are_listed(checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    for index in range(4):
        del stored[f"model.layers.{index}.mlp.up_proj.weight"], stored[f"visual.blocks.{index}.norm1.weight"]
    expected = f"{checkpoint}: the checkpoint lacks 8 tensors of its model: model.visual.blocks.0.norm1.weight"
    with pytest.raises(ConfigError, match=expected + ".* and 3 more"):
        load_adapter(checkpoint, stored, torch.bfloat16)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.norm.weight", "model.embed_tokens.weight"])
def test_a_missing_tensor_is_named_with_its_folder(name: str, checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    del stored[name]
    new = name.replace("model.", "model.language_model.")
    with pytest.raises(ConfigError, match=f"{checkpoint}: the checkpoint lacks 1 tensors of its model: {new}"):
        load_adapter(checkpoint, stored, torch.bfloat16)


def test_unknown_tensors_are_listed(checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    stored["model.layers.0.mlp.up_proj.bias"] = stored["model.layers.0.input_layernorm.weight"]
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)  # as old checkpoints have it
    with pytest.raises(
        ConfigError, match=r"1 tensors .* no place for: model\.language_model\.layers\.0\.mlp\.up_proj\.bias"
    ):
        load_adapter(checkpoint, stored, torch.bfloat16)


def test_wrong_shape(checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    stored["lm_head.weight"] = stored["lm_head.weight"][:, :100]
    expected = re.escape("lm_head.weight is bfloat16[1040, 100] instead of bfloat16[1040, 192]")
    with pytest.raises(ConfigError, match=expected):
        load_adapter(checkpoint, stored, torch.bfloat16)


def test_tied_embeddings(checkpoint: Path, tmp_path: Path, arena_name: str) -> None:
    directory = copy(checkpoint, tmp_path / "tied")
    config = json.loads((directory / "config.json").read_text()) | {"tie_word_embeddings": True}
    (directory / "config.json").write_text(json.dumps(config))
    stored = load_file(directory / "model.safetensors")
    del stored["lm_head.weight"]
    save_file(stored, directory / "model.safetensors")
    model = make_adapter(directory, torch.float32).model
    embedding, head = model.get_input_embeddings().matrix, model.get_output_embeddings().matrix
    assert head.panels.data_ptr() == embedding.panels.data_ptr()


def test_new_names_are_taken_too(checkpoint: Path) -> None:
    """Checkpoints saved by transformers 4.52 and later nest both models below `model`."""
    stored = load_file(checkpoint / "model.safetensors")
    nested = {
        (f"model.{name}" if name.startswith("visual.") else name.replace("model.", "model.language_model.", 1)): tensor
        for name, tensor in stored.items()
    }
    adapter = load_adapter(checkpoint, nested, torch.bfloat16)
    assert torch.equal(adapter.model.lm_head.weight, stored["lm_head.weight"])


@pytest.mark.parametrize("network", Network)
def test_a_network_can_be_alone(network: Network, checkpoint: Path) -> None:
    """A model of one network takes nothing of the other; what the other one computes is an error, not noise."""
    stored = load_file(checkpoint / "model.safetensors")
    own = {name: each for name, each in stored.items() if name.startswith("visual.") == (network is Network.ENCODER)}
    adapter = load_adapter(checkpoint, own, torch.bfloat16, networks=[network])
    filled = {name for name, parameter in adapter.model.named_parameters() if not parameter.is_meta}
    assert len(filled) == len(own)
    assert all(name.startswith("model.visual.") == (network is Network.ENCODER) for name in filled)
    other = next(each for each in Network if each is not network)
    with pytest.raises(ConfigError, match="the checkpoint lacks"):
        load_adapter(checkpoint, own, torch.bfloat16, networks=[other])
    with pytest.raises(TypeError, match="has no vision encoder" if network is Network.LANGUAGE else "has no logits"):
        _ = adapter.encode(torch.zeros(0), []) if network is Network.LANGUAGE else adapter.logits(torch.zeros(1, 192))
