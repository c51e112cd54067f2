"""Importance matrices: files as llama.cpp has them, whose part each rank takes, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from builders import llama
from gguf import GGMLQuantizationType as Kind
from gguf_files import write_gguf
from numpy.typing import NDArray
from torch import Tensor

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.weight_origin import origin_of
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.models.gguf.folder import gguf_folder
from unifiedserve.models.gguf.importance import Squares, read_importance, write_importance
from unifiedserve.models.registry import load_config
from unifiedserve.models.tiny import make_checkpoint
from unifiedserve.placement import Network
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.ranks.parts import parts_of

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny"))


def matrices(checkpoint: Path) -> dict[str, tuple[str, Tensor]]:
    """Return names and weights that 4 bits quantise, by the names that llama.cpp gives them."""
    found = {}
    for name, weight in SafetensorsFiles(checkpoint).read():
        _, dot, own = name.partition(".layers.")
        layer, _, module = own.removesuffix(".weight").partition(".")
        if dot and module in NAMES and name.endswith(".weight"):
            found[f"blk.{layer}.{NAMES[module]}.weight"] = name, weight
    return found


def drawn(checkpoint: Path) -> dict[str, Squares]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: Squares(torch.randn(weight.shape[1], generator=generator).square() * 64, 64)
        for name, (_, weight) in matrices(checkpoint).items()
    }


def source(checkpoint: Path, file: Path, ranks: int = 1) -> list[dict[str, Tensor]]:
    """Return what is in memory of each rank."""
    config, options = load_config(checkpoint), EngineConfig.of(quantization="int4", importance=str(file))
    parts = [None] if ranks == 1 else parts_of(config, ranks, options.machine.shared_encoder)
    return [dict(weight_source(options, checkpoint, config, CPU, "float32", part).read()) for part in parts]


def write_raw(path: Path, tensors: Mapping[str, NDArray[np.generic]], kind: str = "imatrix") -> Path:
    """Write tensors by the package alone."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(kind)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def entry(inputs: int, name: str = "blk.0.attn_q.weight", rows: float = 1.0) -> dict[str, NDArray[np.generic]]:
    return {f"{name}.in_sum2": np.ones(inputs, np.float32), f"{name}.counts": np.array([rows], np.float32)}


def test_files_are_as_llama_cpp_writes_them(tmp_path: Path) -> None:
    """With the metadata and tensors that its tool quantize asks for, in the order of names."""
    squares = {
        "blk.1.attn_q.weight": Squares(torch.tensor([2.0, 8.0]), 1024),
        "blk.0.x.weight": Squares(torch.ones(3), 512),
    }
    write_importance(tmp_path / "a.gguf", squares, "wiki.txt", 512)
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert {name: field.contents() for name, field in fields.items()} == {
        "general.type": "imatrix",
        "imatrix.datasets": ["wiki.txt"],
        "imatrix.chunk_count": 2,
        "imatrix.chunk_size": 512,
    }
    assert [field.types[0].name for field in fields.values()] == ["STRING", "ARRAY", "UINT32", "UINT32"]
    found = {each.name: (each.tensor_type.name, each.shape.tolist(), each.data.tolist()) for each in reader.tensors}
    assert found == {
        "blk.0.x.weight.in_sum2": ("F32", [3], [1, 1, 1]),
        "blk.0.x.weight.counts": ("F32", [1], [512]),
        "blk.1.attn_q.weight.in_sum2": ("F32", [2], [2, 8]),
        "blk.1.attn_q.weight.counts": ("F32", [1], [1024]),
    }
    assert [*found] == sorted(found, key=lambda name: (name.rpartition(".")[0], name.endswith("counts")))
    assert read_importance(tmp_path / "a.gguf")["blk.1.attn_q.weight"].tolist() == [2 / 1024, 8 / 1024]


def test_files_of_others(tmp_path: Path) -> None:
    """Sums may have two dimensions, sums without squares lie beside them, and experts' are of no use here."""
    name, experts = "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"
    tensors = {
        f"{name}.in_sum2": np.array([[4.0, 2.0]], np.float32),
        f"{name}.counts": np.array([[4.0]], np.float32),
        f"{name}.in_sum": np.array([[1.0, -1.0]], np.float32),
        f"{experts}.in_sum2": np.ones((3, 2), np.float32),
        f"{experts}.counts": np.ones((3, 1), np.float32),
        **entry(2, "blk.1.attn_q.weight", rows=0.0),
    }
    found = read_importance(write_raw(tmp_path / "a.gguf", tensors))
    assert {each: values.tolist() for each, values in found.items()} == {name: [1, 0.5], "blk.1.attn_q.weight": [1, 1]}


@pytest.mark.parametrize("ranks", [1, 2])
def test_each_rank_weighs_its_inputs(checkpoint: Path, tmp_path: Path, ranks: int) -> None:
    squares, file = drawn(checkpoint), tmp_path / "a.gguf"
    write_importance(file, squares, "text", 64)
    config = load_config(checkpoint)
    parts = parts_of(config, ranks, EngineConfig().machine.shared_encoder)
    by_inputs = set()
    for part, stored in zip(parts, source(checkpoint, file, ranks), strict=True):
        for key, (name, weight) in matrices(checkpoint).items():
            cut, importance = part.cut(name), squares[key].sums / 64
            assert cut
            rows = cut.of(weight)
            if cut.dim:
                importance = importance[cut.start : cut.stop]
                by_inputs.add((key.split(".")[2], importance.shape[0]))
            scheme = next(Scheme(4, group) for group in (32, 16) if rows.shape[1] % group == 0)
            scales, plain = (quantize(rows, scheme, each).scales.half() for each in (importance, None))
            found = stored[f"{name}.scales"].transpose(1, 2).flatten(0, 1)[: len(rows)]
            assert torch.equal(found, scales)
            assert not torch.equal(found, plain)
    text = config.get_text_config()

    assert by_inputs == {("attn_output", text.hidden_size // ranks), ("ffn_down", text.intermediate_size // ranks)}


def test_matrices_that_are_missing_are_counted(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    squares, count = drawn(checkpoint), len(matrices(checkpoint))
    del squares["blk.0.ffn_up.weight"]
    write_importance(tmp_path / "a.gguf", squares, "text", 64)
    source(checkpoint, tmp_path / "a.gguf", 2)
    (message,) = caplog.messages
    assert f"a.gguf has nothing of 1 of {count} matrices (model.layers.0.mlp.up_proj.weight, …)" in message


def test_kept_weights_are_of_one_importance_matrix(checkpoint: Path, tmp_path: Path) -> None:
    def origin(**options: str) -> tuple[str, str]:
        made = origin_of(EngineConfig.of(quantization="int4", **options), checkpoint, "bfloat16", 0, tuple(Network))
        return made.name(), made.state()

    one, other = (str(write_raw(tmp_path / name, entry(64))) for name in ("a.gguf", "b.gguf"))
    before = origin(importance=one)
    assert len({origin()[0], before[0], origin(importance=other)[0]}) == 3
    write_raw(tmp_path / "a.gguf", entry(96))
    assert origin(importance=one)[0] == before[0]
    assert origin(importance=one)[1] != before[1]


@pytest.mark.parametrize(
    ("name", "tensors", "words"),
    [
        ("imatrix", entry(32), r"is another model's: its blk\.0\.attn_q\.weight has 32 inputs, \S+q_proj\.weight 192"),
        (
            "imatrix",
            entry(64, "blk.9.attn_q.weight"),
            r"is another model's: it has blk\.9\.attn_q\.weight, but .* layers",
        ),
        ("imatrix", entry(64, "output.weight"), r"is another model's: it has none of this one's matrices"),
        ("imatrix", {"blk.0.attn_q.weight.in_sum2": np.ones(64, np.float32)}, "has no sums and counts in float32"),
        ("imatrix", entry(64) | {"blk.0.attn_q.weight.in_sum2": np.full(64, -1, np.float32)}, "no numbers or negative"),
        ("imatrix", entry(64) | {"blk.0.attn_q.weight.in_sum2": np.full(64, np.nan, np.float32)}, "no numbers"),
        ("imatrix", entry(64, rows=-1.0), "no numbers or negative"),
        ("model", entry(64), "this GGUF file is no importance matrix; unifiedserve calibrate makes one"),
    ],
)
def test_refuses_what_is_no_importance_matrix_of_the_model(
    checkpoint: Path, tmp_path: Path, name: str, tensors: dict[str, NDArray[np.generic]], words: str
) -> None:
    file = write_raw(tmp_path / "a.gguf", tensors, name)
    with pytest.raises(ConfigError, match=f"a.gguf: .*{words}"):
        source(checkpoint, file)


def test_refuses_what_is_no_file_of_that_kind(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.gguf: No such file"):
        source(checkpoint, tmp_path / "none.gguf")
    (tmp_path / "a.dat").write_bytes(b"\x07\0\0\0 what llama.cpp wrote before")
    with pytest.raises(ConfigError, match=r"a\.dat: not a readable GGUF file"):
        source(checkpoint, tmp_path / "a.dat")


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_importance_needs_4_bits(quantization: str) -> None:
    with pytest.raises(ConfigError, match=r"^--importance .* give --quantization int4"):
        EngineConfig.of(quantization=quantization, importance="a.gguf").check()


def test_gguf_models_take_it_too(tmp_path: Path) -> None:
    """A model's importance matrix serves the file that was written from it, whose rows are in another order."""
    (plain := tmp_path / "plain").mkdir()
    llama(plain)
    model, file = write_gguf(tmp_path / "model.gguf", plain, lambda name: Kind.F32), tmp_path / "a.gguf"
    squares = drawn(plain)
    write_importance(file, squares, "text", 64)
    (own,), (other,) = source(plain, file), source(gguf_folder(model, tmp_path / "cache"), file)
    scales = [name for name in own if name.endswith(".scales")]
    assert len(scales) == len(squares) + 1  # and the head's
    assert all(torch.equal(own[name], other[name]) for name in scales)
