"""Models out of GGUF files: answers are those of transformers for the same weights, and what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from builders import chat_template, save, text_sizes, tokenizer
from cases import user
from deferred import DeferredDevice
from gguf import GGMLQuantizationType as Kind
from gguf_files import KindOf, write_gguf
from model_loop import Loop, Request, make_adapter
from reference import Case, Reference, load, transformers
from torch import Tensor

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.engine.checkpoint import load_checkpoint
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.errors import ConfigError
from unifiedserve.memory.panels import gather_matrices
from unifiedserve.models.gguf import tensors as gguf_tensors
from unifiedserve.models.gguf.folder import gguf_folder
from unifiedserve.models.registry import load_config, load_processor
from unifiedserve.placement.encoder_ranks import FIRST_ALONE
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.scheme import Scheme
from unifiedserve.ranks.parts import parts_of

CASE = Case([user("What is a river, and how does it differ from a lake? Be brief.")])
TOKENS = 12
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "head_dim": 64}
FLOATS = {"mlp": Kind.F16, "embed": Kind.BF16}
#: in q, k and v of one layer there are two types
MIXED = {
    "v_proj": Kind.Q8_0,
    "q_proj": Kind.Q4_1,
    "k_proj": Kind.Q4_1,
    "o_proj": Kind.Q4_0,
    "down_proj": Kind.Q4_K,
    "mlp": Kind.Q4_0,
    "lm_head": Kind.Q8_0,
    "embed": Kind.Q8_0,
}


def kinds(by_part: dict[str, Kind]) -> KindOf:
    return lambda name: next((kind for part, kind in by_part.items() if part in name), Kind.F32)


def make(folder: Path, architecture: str, by_part: dict[str, Kind], **sizes: Any) -> Path:
    """Write a GGUF file, and beside it in `checkpoint` the values that it holds."""
    tokens, checkpoint = tokenizer(), folder / "checkpoint"
    name = "gemma3_text" if architecture == "gemma3" else architecture
    config = transformers.AutoConfig.for_model(name, **text_sizes(tokens, **sizes))
    save(checkpoint, config, tokens, chat_template({}))
    return write_gguf(folder / "model.gguf", checkpoint, kinds(by_part))


def answer(folder: Path, device: Device) -> list[int]:
    """Answer with the folder's weights; its tokenizer has a test of its own."""
    ours, loop = load_processor(folder.parents[1] / "checkpoint"), Loop(make_adapter(folder, torch.float32, device))
    try:
        request = Request(ours.prompt(CASE.messages, []), torch.empty(0, 1, dtype=torch.uint8))
        (tokens,) = loop.generate([request], TOKENS, 1 << 30, ours.eos_token_ids)
        return tokens
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("architecture", "sizes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 32}),
        ("gemma3", {"head_dim": 32, "sliding_window": 16, "tie_word_embeddings": True}),
    ],
)
def test_floats(architecture: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    file = make(tmp_path, architecture, FLOATS, **sizes)
    folder = gguf_folder(file, tmp_path / "cache")
    assert answer(folder, CPU) == load(tmp_path / "checkpoint").generate(CASE, TOKENS)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reference]:
    """The folder of a quantised file, and transformers' model of its values."""
    place = tmp_path_factory.mktemp("mixed")
    file = make(place, "llama", MIXED, **WIDE)
    return gguf_folder(file, place / "cache"), load(place / "checkpoint")


def test_codes_become_what_they_stand_for(mixed: tuple[Path, Reference]) -> None:
    """On a device without products of codes."""
    folder, hf = mixed
    assert answer(folder, DeferredDevice()) == hf.generate(CASE, TOKENS)


def test_ranks_read_their_parts(mixed: tuple[Path, Reference], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks read what one does, whole blocks of codes counted: MIXED's are all within a rank's part."""
    folder, _ = mixed
    config, read = load_config(folder), Counter[str]()
    blocks = gguf_tensors.read_blocks

    def counted(rows: Any, kind: str, scheme: Scheme) -> QuantizedMatrix:
        read[name] += rows.nbytes
        return blocks(rows, kind, scheme)

    monkeypatch.setattr(gguf_tensors, "read_blocks", counted)
    parts = parts_of(config, 2, FIRST_ALONE)
    for name, read_part in gguf_tensors.GGUFTensors(folder, config).loads():
        whole, once = values(read_part(None)), read.pop(name, 0)
        for part in parts:
            cut = part.cut(name)
            assert torch.equal(values(read_part(cut)), whole if cut is None else cut.of(whole))
        assert read[name] == once


def values(read: Tensor | QuantizedMatrix) -> Tensor:
    return read.dequantize() if isinstance(read, QuantizedMatrix) else read


def test_codes_in_memory(mixed: tuple[Path, Reference]) -> None:
    """Scales and zeros have 16 bits there. Projections of the same input are of the same bits, so that they are one."""
    folder, hf = mixed
    source = weight_source(EngineConfig(), folder, load_config(folder), CPU, "float32")
    stored = gather_matrices(dict(source.read()))
    state = hf.model.state_dict()
    assert stored.keys() == state.keys()
    bits = {}
    for name, wanted in state.items():
        held = stored[name]
        if isinstance(held, torch.Tensor):
            torch.testing.assert_close(held.float(), wanted)
            continue
        values = held.matrix(wanted.shape).rows(torch.float32)
        torch.testing.assert_close(values, wanted, rtol=2**-10, atol=2**-9 * float(wanted.abs().max()))
        bits[name.split(".")[-2]] = 8 * held.panels.numel() // wanted.numel() if held.scales is not None else None
    assert bits == {
        "q_proj": 8, "k_proj": 8, "v_proj": 8, "o_proj": 4, "gate_proj": 4, "up_proj": 4, "down_proj": 4, "lm_head": 8,
        "embed_tokens": 8,
    }  # fmt: skip


def test_the_tokenizer_is_the_checkpoints(mixed: tuple[Path, Reference]) -> None:
    folder, hf = mixed
    ours = load_processor(folder)
    text = "What is a river? <|im_end|>\n\tIt is 42 metres wide, isn't it?  Été, 日本"
    assert ours.chat.tokenizer(text)["input_ids"] == hf.tokenizer(text)["input_ids"]
    assert ours.prompt(CASE.messages, []).token_ids == hf.inputs(CASE)["input_ids"][0].tolist()
    assert hf.tokenizer.eos_token_id in ours.eos_token_ids


def test_all_ends_of_a_vocabulary_end_answers(tmp_path: Path) -> None:
    """A file names one. That of Gemma 3, which its converter takes from the tokenizer, is not the end of a turn."""
    make(tmp_path, "llama", FLOATS)
    names = json.loads((tmp_path / "checkpoint" / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in names}
    file = write_gguf(tmp_path / "ends.gguf", tmp_path / "checkpoint", kinds(FLOATS), end="<|vision_end|>")
    ends = load_processor(gguf_folder(file, tmp_path / "cache")).eos_token_ids
    assert set(ends) == {ids["<|vision_end|>"], ids["<|im_end|>"], ids["<|endoftext|>"]}


def test_digits_of_smollm_are_single(tmp_path: Path) -> None:
    """As its own tokenizer.json has them: no token holds a digit beside something else, not even a space."""
    make(tmp_path, "llama", FLOATS)
    file = write_gguf(tmp_path / "digits.gguf", tmp_path / "checkpoint", kinds(FLOATS), words="smollm")
    ours = load_processor(gguf_folder(file, tmp_path / "cache")).chat.tokenizer
    pieces = [piece for piece, _ in ours.backend_tokenizer.pre_tokenizer.pre_tokenize_str("from 12 to 345")]
    assert pieces == ["from", "Ġ", "1", "2", "Ġto", "Ġ", "3", "4", "5"]


def test_texts_and_words_of_llama_3(tmp_path: Path) -> None:
    """A text begins with BOS, of which files need not tell, and a word that is a token needs no merges for it."""
    make(tmp_path, "llama", FLOATS)
    path = tmp_path / "checkpoint" / "tokenizer.json"
    stored = json.loads(path.read_text())
    merges, vocabulary = stored["model"]["merges"], stored["model"]["vocab"]
    word = vocabulary.pop("".join(merges.pop()))  # the last one, which no other is made of
    vocabulary["zqzq"] = word
    path.write_text(json.dumps(stored))
    file = write_gguf(
        tmp_path / "words.gguf", tmp_path / "checkpoint", kinds(FLOATS), words="llama-bpe", begin="<|im_start|>"
    )
    ours = load_processor(gguf_folder(file, tmp_path / "cache")).chat.tokenizer
    assert ours("zqzq")["input_ids"] == [ours.bos_token_id, word]
    assert ours.bos_token == "<|im_start|>"


def test_scaled_frequencies_of_llama_3(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 8192, "rope_theta": 500000.0}
    checkpoint = tmp_path / "checkpoint"
    tokens = tokenizer()
    save(checkpoint, transformers.LlamaConfig(**text_sizes(tokens, rope_parameters=rope)), tokens, chat_template({}))
    hf = load(checkpoint)
    plain = 500000.0 ** -(torch.arange(8) / 8)
    factors = (plain / hf.model.model.rotary_emb.inv_freq).numpy()
    file = write_gguf(tmp_path / "model.gguf", checkpoint, kinds({}), {"rope_freqs.weight": factors})
    folder = gguf_folder(file, tmp_path / "cache")
    made = load_config(folder).rope_parameters
    assert {key: made[key] for key in rope} == rope
    wrong = write_gguf(tmp_path / "wrong.gguf", checkpoint, kinds({}), {"rope_freqs.weight": factors * 1.1})
    with pytest.raises(ConfigError, match=r"rope_freqs\.weight are not those of Llama 3"):
        gguf_folder(wrong, tmp_path / "cache")


def test_a_folder_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew for a file that has changed. All that a server needs of it is found by the file's name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = make(tmp_path, "qwen3", FLOATS)
    config = EngineConfig.of(model=str(file))
    folder, *_ = load_checkpoint(config)
    first = (folder / "gguf.json").stat()
    assert load_checkpoint(config)[0] == folder
    assert (folder / "gguf.json").stat() == first
    file.write_bytes(file.read_bytes() + b"\0" * 64)
    assert load_checkpoint(config)[0] != folder


def test_float_files_can_be_quantised_and_others_not(mixed: tuple[Path, Reference], tmp_path: Path) -> None:
    folder = gguf_folder(make(tmp_path, "qwen2", FLOATS), tmp_path / "cache")
    config = EngineConfig.of(quantization="int4")
    headers = weight_source(config, folder, load_config(folder), CPU, "float32").headers()
    assert any(header.name.endswith("q_proj.weight.scales") for header in headers)
    with pytest.raises(ConfigError, match=r"--quantization int4: this checkpoint is quantised already \(gguf\)"):
        weight_source(config, mixed[0], load_config(mixed[0]), CPU, "float32")


def write(path: Path, architecture: str, tensors: dict[str, tuple[np.ndarray, Kind]], **fields: Any) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in fields.items():
        writer.add_string(key.replace("__", "."), value)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


ROWS = np.zeros((2, 256), np.float32)


@pytest.mark.parametrize(
    ("architecture", "tensors", "words"),
    [
        ("mamba", {"a": (ROWS, Kind.F32)}, "architecture 'mamba' are not supported; those that are: gemma3, llama"),
        ("clip", {"a": (ROWS, Kind.F32)}, r"this is a vision tower \(mmproj\); --model needs the language model's"),
        (
            "llama",
            {"a": (np.zeros((2, 66), np.uint8), Kind.TQ2_0)},
            "a is of type TQ2_0, which is not supported; types",
        ),
        ("llama", {"a": (ROWS, Kind.F32)}, "transformers does not understand its metadata"),
    ],
)
def test_what_is_refused(
    architecture: str, tensors: dict[str, tuple[np.ndarray, Kind]], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        gguf_folder(write(tmp_path / "model.gguf", architecture, tensors), tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*"))


def test_parts_of_a_model_are_refused(tmp_path: Path) -> None:
    """Each is a file by itself; the first one has all metadata."""
    writer = gguf.GGUFWriter(tmp_path / "model-00001-of-00003.gguf", "llama")
    writer.add_uint16("split.count", 3)
    writer.add_tensor("a", ROWS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ConfigError, match=r"00003\.gguf: this is one of 3 parts: join them with `llama-gguf-split"):
        gguf_folder(tmp_path / "model-00001-of-00003.gguf", tmp_path / "cache")


def test_damaged_files(tmp_path: Path) -> None:
    whole = make(tmp_path, "qwen2", FLOATS).read_bytes()
    with pytest.raises(ConfigError, match=r"none\.gguf: No such file"):
        gguf_folder(tmp_path / "none.gguf", tmp_path)
    for number, data in enumerate([b"", b"GGUF", whole[:50], whole[:3000], whole[:-100], b"\0" * 4000]):
        file = tmp_path / f"{number}.gguf"
        file.write_bytes(data)
        with pytest.raises(ConfigError, match=rf"{number}\.gguf: ") as caught:
            gguf_folder(file, tmp_path / "cache")
        assert "\n" not in str(caught.value)


def test_tensors_that_the_model_has_no_place_for(tmp_path: Path) -> None:
    folder = gguf_folder(make(tmp_path, "llama", FLOATS), tmp_path / "cache")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(ConfigError, match=r"has no place for blk\.2\.attn_k\.weight, blk\.2\.attn_norm\.weight"):
        weight_source(EngineConfig(), folder, load_config(folder), CPU, "float32")
