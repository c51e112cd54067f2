"""A language model over several ranks says what it says on one, and no rank has more than its part."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from deferred import DeferredDevice
from hypothesis import given
from hypothesis import strategies as st
from model_loop import Loop, Request, make_adapter
from quantized_checkpoints import write_awq, write_gptq, write_packed
from rank_threads import ranks_of

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.engine.buffer_sizes import plan_layout
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.memory.weights import weights_bytes
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.language_models import LANGUAGE_MODELS
from unifiedserve.models.processor import ExpandedPrompt
from unifiedserve.models.registry import load_config
from unifiedserve.placement import read_placement
from unifiedserve.ranks.parts import RankPart, possible_ranks

REPOSITORY = Path(__file__).resolve().parents[2]
SIZES = {
    "vocab_size": 301,
    "hidden_size": 128,
    "intermediate_size": 200,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "qwen2": {"tie_word_embeddings": True, "intermediate_size": 384},
    "qwen3": {"head_dim": 32, "num_key_value_heads": 4},
    "mistral": {"sliding_window": None, "num_key_value_heads": 8, "vocab_size": 64},
}
HALF_BILLION = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
TOKENS = 12


def make_config(kind: str, **changes: Any) -> Any:
    return load_transformers().AutoConfig.for_model(kind, **(SIZES | LAYOUTS[kind] | changes))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder with a random model of each layout."""
    folders = {}
    for kind in LAYOUTS:
        torch.manual_seed(0)
        model = load_transformers().AutoModelForCausalLM.from_config(make_config(kind))
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.2)
        folders[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folders[kind])
    return folders


def requests() -> list[Request]:
    random = torch.Generator().manual_seed(0)
    return [
        Request(
            ExpandedPrompt(torch.randint(0, 64, (length,), generator=random).tolist(), [], []),
            torch.empty(0, 1, dtype=torch.uint8),
        )
        for length in (5, 40, 17)
    ]


def alone(checkpoint: Path, kv_dtype: torch.dtype | None = None, quantization: str = "none") -> list[list[int]]:
    loop = Loop(make_adapter(checkpoint, torch.float32, quantization=quantization), kv_dtype=kv_dtype)
    try:
        return loop.generate(requests(), TOKENS, chunk=16)
    finally:
        loop.close()


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_tokens_are_those_of_one_rank(checkpoints: dict[str, Path], kind: str, ranks: int) -> None:
    """With fewer heads of keys and values than ranks, as many, and more."""
    with ranks_of(checkpoints[kind], ranks) as loop:
        assert loop.generate(requests(), TOKENS, chunk=16) == alone(checkpoints[kind])


def test_codes_of_keys_and_values_are_those_of_one_rank(checkpoints: dict[str, Path]) -> None:
    with ranks_of(checkpoints["qwen3"], 2, kv_dtype=torch.int8) as loop:
        assert loop.generate(requests(), TOKENS, chunk=16) == alone(checkpoints["qwen3"], torch.int8)


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_bfloat16_says_the_same_again(checkpoints: dict[str, Path], quantization: str) -> None:
    with ranks_of(checkpoints["qwen2"], 4, torch.bfloat16, quantization) as loop:
        first, again = (loop.generate(requests(), TOKENS, chunk=16) for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    "write", [write_awq, *(pytest.param(write, marks=pytest.mark.long) for write in (write_gptq, write_packed))]
)
def test_the_tokens_of_a_quantised_checkpoint_are_those_of_one_rank(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    with ranks_of(tmp_path, 2) as loop:
        assert loop.generate(requests(), TOKENS, chunk=16) == alone(tmp_path)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_the_tokens_of_weights_quantised_here_are_those_of_one_rank(
    checkpoints: dict[str, Path], quantization: str
) -> None:
    with ranks_of(checkpoints["qwen3"], 2, quantization=quantization) as loop:
        assert loop.generate(requests(), TOKENS, chunk=16) == alone(checkpoints["qwen3"], quantization=quantization)


def test_logits_of_quantised_parts_are_near_those_of_the_whole(checkpoints: dict[str, Path]) -> None:
    whole = make_adapter(checkpoints["qwen2"], torch.float32, quantization="int8")
    hidden = torch.randn(3, SIZES["hidden_size"], generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    with ranks_of(checkpoints["qwen2"], 2, quantization="int8") as loop:
        torch.testing.assert_close(loop.adapter.logits(hidden), whole.logits(hidden), rtol=1e-3, atol=1e-3)


@given(
    heads=st.integers(1, 24),
    groups=st.integers(1, 8),
    inner=st.integers(64, 3000),
    vocabulary=st.integers(64, 3000),
    data=st.data(),
)
def test_every_row_and_column_is_somebodys(
    heads: int, groups: int, inner: int, vocabulary: int, data: st.DataObject
) -> None:
    """Each query head, inner column and token is one rank's; the keys and values that a query needs are beside it."""
    kv_heads = data.draw(st.sampled_from([each for each in range(1, heads + 1) if heads % each == 0]))
    ranks = data.draw(st.sampled_from(possible_ranks(heads, kv_heads)))
    text = make_config(
        "qwen3",
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=2 * groups,
        intermediate_size=inner,
        vocab_size=vocabulary,
    )
    parts = [RankPart(text, rank, ranks) for rank in range(ranks)]
    for name, size in (
        ("layers.0.self_attn.q_proj.weight", heads * 2 * groups),
        ("layers.0.self_attn.o_proj.weight", heads * 2 * groups),
        ("layers.1.mlp.up_proj.weight", inner),
        ("layers.1.mlp.down_proj.weight", inner),
        ("embed_tokens.weight", vocabulary),
        ("lm_head.weight", vocabulary),
    ):
        cuts = [part.cut(name) for part in parts]
        assert [row for cut in cuts if cut for row in range(cut.start, cut.stop)] == list(range(size))
    for part in parts:
        queries, keys = (part.cut(f"layers.0.self_attn.{name}_proj.bias") for name in "qk")
        assert queries is not None
        assert keys is not None
        needed = {row // (2 * groups) * kv_heads // heads for row in range(queries.start, queries.stop)}
        assert needed == {row // (2 * groups) for row in range(keys.start, keys.stop)}
        assert part.cut("layers.0.self_attn.o_proj.bias") is None
        assert part.cut("layers.0.self_attn.q_norm.weight") is None


def test_refuses_numbers_that_do_not_divide_the_heads() -> None:
    text = make_config("qwen2", num_attention_heads=14, num_key_value_heads=2)
    with pytest.raises(ConfigError, match=r"3: 14 heads, and 2 of keys and values, .*numbers that do are 1, 2, 14$"):
        RankPart(text, 0, 3)


def test_the_page_says_which_models_can_be_divided() -> None:
    page = (REPOSITORY / "docs" / "models.md").read_text()
    section = page.partition("## Over several ranks")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")][2:]
    said = {ranks.strip(): re.findall("`(.+?)`", models) for ranks, models in rows}
    assert said == {
        "as divide the heads": [kind for kind in sorted(LANGUAGE_MODELS) if divided(kind)],
        "one": [kind for kind in sorted(LANGUAGE_MODELS) if not divided(kind)],
    }


def divided(kind: str) -> bool:
    """Tell whether a model of a type, with that type's defaults, can be divided."""
    window = {"sliding_window": None} if kind == "mistral" else {}
    return CPU.divides(load_transformers().AutoConfig.for_model(kind, **window).get_text_config(), "bfloat16")


def layout_of(kind: str, device: Device, placement: str = "shared") -> EngineLayout:
    config = make_config(kind) if kind in LAYOUTS else load_transformers().AutoConfig.for_model(kind)
    processor: Any = SimpleNamespace(config=config, keeps_visual_rows=False, patch_row_bytes=8, visual_dim=8)
    options = EngineConfig.of(tensor_parallel_size=2, placement=placement)
    return plan_layout(options, read_placement(placement, ()), processor, "float32", "none", "none", device)


@pytest.mark.parametrize("device", [CPU, DeferredDevice()], ids=["cpu", "gpu"])
def test_refuses_models_that_cannot_be_divided(device: Device) -> None:
    with pytest.raises(ConfigError, match=r"^--tensor-parallel-size 2: .*type gemma2"):
        layout_of("gemma2", device)


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("ep+d@mem1", "keys and values in 2 memories, and those of several GPUs do not travel yet"),
        ("e@cuda:1+pd@cuda:0", "mem1 is on cuda:1, and mem0 on cuda:0 to cuda:1; name a first GPU .*pd@cuda:2"),
    ],
)
def test_refuses_placements_of_gpus_that_cannot_be(placement: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^--tensor-parallel-size 2: .*{words}"):
        layout_of("qwen2", DeferredDevice(), placement)


def test_each_gpu_has_its_rank() -> None:
    """A rank's weights, keys and values are in its GPU's memory; on the processor all share the host's pages."""

    class Gpus(DeferredDevice):
        def place_of(self, gpu: int) -> str:
            return f"cuda:{gpu}"

        def place_of_rank(self, place: str, rank: int) -> str:
            return f"cuda:{int(place[-1]) + rank}"

    memories = layout_of("qwen2", Gpus(), "e@cuda:0+pd@mem1,cuda:1").memories
    assert {name: each.place_of_ranks for name, each in memories.items()} == {
        "mem0": ("cuda:0",),
        "mem1": ("cuda:1", "cuda:2"),
    }
    assert list(memories["mem1"].kv_of_ranks.values()) == ["cuda:2"]
    assert memories["mem0"].kv_of_ranks == {}
    (shared,) = layout_of("qwen2", CPU).memories.values()
    assert shared.kv_of_ranks == {}
    assert shared.kv.page_bytes == 2 * memories["mem1"].kv.page_bytes


@pytest.mark.parametrize("quantization", ["none", "int4"])
def test_two_ranks_have_little_more_than_half_the_weights_each(tmp_path: Path, quantization: str) -> None:
    """In the shapes of Qwen2.5-0.5B."""
    make_config("qwen2", **HALF_BILLION).save_pretrained(tmp_path)
    config = load_config(tmp_path)
    options = EngineConfig.of(load_format="dummy", quantization=quantization)

    def size(part: RankPart | None) -> int:
        tensors = weight_source(options, tmp_path, config, CPU, "bfloat16", part)
        return weights_bytes(tensors, torch.bfloat16)

    whole = size(None)
    assert all(size(RankPart(config, rank, 2)) <= 0.55 * whole for rank in range(2))
