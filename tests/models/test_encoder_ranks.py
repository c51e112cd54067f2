"""A vision encoder over several ranks makes the tokens that it makes on one, whatever the ranks do in between."""

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_loop import Loop, Request, make_adapter
from rank_threads import ranks_of
from torch import Tensor

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.buffer_sizes import plan_layout
from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import FAMILIES, divides_encoder, load_config, load_processor
from unifiedserve.placement import read_placement
from unifiedserve.placement.encoder_ranks import EncoderRanks, read_encoder_ranks
from unifiedserve.ranks.encoder import spread
from unifiedserve.ranks.parts import parts_of

REPOSITORY = Path(__file__).resolve().parents[2]
BUNDLED = REPOSITORY / "unifiedserve" / "bundled_model"


class Batch(NamedTuple):
    """Patches of whole units of media."""

    patches: Tensor
    units: list[tuple[MediaPlan, range]]


@pytest.fixture(scope="module", params=["dp2", "tp2", "dp3xtp2"])
def ranks(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[Loop]:
    """Return a loop over the first of several ranks that share the encoder."""
    count = 6 if request.param == "dp3xtp2" else 2
    with ranks_of(checkpoint, count, encoder=read_encoder_ranks(request.param, count)) as loop:
        yield loop


@pytest.fixture(scope="module")
def batch(ours: Processor) -> Batch:
    """Return two images and most of a video, of different sizes, with patches at random."""
    video = ours.plan_video(VideoInfo(10, 2.0, 5.0, 112, 84), MediaOptions(num_frames=-1))
    units = [
        (ours.plan_image(112, 56, MediaOptions()), range(1)),
        (video, range(1, video.units)),
        (ours.plan_image(84, 140, MediaOptions()), range(1)),
    ]
    rows = sum(plan.patches_per_unit * len(part) for plan, part in units)
    random = torch.Generator().manual_seed(0)
    return Batch(torch.randint(0, 256, (rows, ours.patch_row_bytes), dtype=torch.uint8, generator=random), units)


@pytest.fixture(scope="module")
def expected(adapter: LanguageAdapter, batch: Batch) -> Tensor:
    return adapter.visual_tokens(*batch)


def result_of(layers: Generator[None, None, Tensor]) -> Tensor:
    while True:
        try:
            next(layers)
        except StopIteration as ended:
            tokens: Tensor = ended.value
            return tokens


def test_the_tokens_are_those_of_one_rank(ranks: Loop, batch: Batch, expected: Tensor) -> None:
    torch.testing.assert_close(ranks.adapter.visual_tokens(*batch), expected)
    torch.testing.assert_close(result_of(ranks.adapter.encode_layers(*batch)), expected)


def test_one_unit_is_encoded_beside_ranks_without_any(ranks: Loop, batch: Batch, expected: Tensor) -> None:
    plan, part = batch.units[0]
    tokens = ranks.adapter.visual_tokens(batch.patches[: plan.patches_per_unit], [(plan, part)])
    torch.testing.assert_close(tokens, expected[: len(tokens)])


def test_other_work_may_come_between_layers(ranks: Loop, batch: Batch, expected: Tensor) -> None:
    """A step of the language model, another batch, and one that is given up."""
    layers, dropped = (ranks.adapter.encode_layers(*batch) for _ in range(2))
    next(layers)
    tokens = torch.tensor([3, 5, 8])
    embeddings = ranks.adapter.embed(tokens, None, torch.zeros(3, dtype=torch.bool))
    next(dropped)
    torch.testing.assert_close(ranks.adapter.visual_tokens(*batch), expected)
    next(layers)
    dropped.close()
    assert torch.equal(ranks.adapter.embed(tokens, None, torch.zeros(3, dtype=torch.bool)), embeddings)
    torch.testing.assert_close(result_of(layers), expected)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30), parts=st.integers(1, 8))
def test_units_are_spread_about_equally(sizes: list[int], parts: int) -> None:
    spans = spread(sizes, parts)
    assert [place for span in spans for place in span] == list(range(len(sizes)))
    assert len(spans) == parts
    assert spans[0]
    for span in spans:
        assert sum(sizes[place] for place in span) <= sum(sizes) / parts + max(sizes)


@pytest.mark.parametrize(
    ("text", "ranks", "encoder"),
    [("", 4, (1, 1)), ("dp2", 2, (2, 1)), ("tp4", 4, (1, 4)), ("dp2xtp2", 4, (2, 2)), ("dp1xtp1", 1, (1, 1))],
)
def test_reads_ranks(text: str, ranks: int, encoder: tuple[int, int]) -> None:
    assert read_encoder_ranks(text, ranks) == EncoderRanks(*encoder)


@pytest.mark.parametrize(
    ("text", "ranks", "words"),
    [
        ("2", 2, "expected something like dp2, tp2 or dp2xtp2"),
        ("dp0", 1, "expected something like"),
        ("dp2xdp2", 4, "expected something like"),
        ("dp2xtp2", 2, "that is 4 ranks, and --tensor-parallel-size is 2"),
    ],
)
def test_refuses_ranks_that_cannot_be(text: str, ranks: int, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^--encoder-ranks {text}: .*{re.escape(words)}"):
        read_encoder_ranks(text, ranks)


def test_refuses_a_worker_that_only_encodes() -> None:
    machine = EngineConfig.of(tensor_parallel_size=2, encoder_ranks="dp2", placement="e-p-d").machine
    (encoder,) = [each for each in machine.workers.instances if "encode" in each.name]
    with pytest.raises(ConfigError, match="has no language model"):
        machine.encoder_ranks_of(encoder)


def test_refuses_heads_that_cannot_be_divided(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match=r"tp3: 4 heads of the vision encoder .* numbers that do are 1, 2, 4$"):
        parts_of(load_config(checkpoint), 6, EncoderRanks(2, 3))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("llava", {"encoder_ranks": "tp2"}, "of type llava cannot be divided; give dp2"),
        ("qwen2_5_vl", {"encoder_ranks": "tp2", "dual_streams": "on"}, "leave one of them out"),
    ],
)
def test_refuses_encoders_that_cannot_be_shared(kind: str, options: dict[str, str], words: str) -> None:
    config = load_transformers().AutoConfig.for_model(kind)
    processor: Any = SimpleNamespace(config=config, keeps_visual_rows=False)
    engine = EngineConfig.of(tensor_parallel_size=2, **options)
    with pytest.raises(ConfigError, match=f"^--encoder-ranks tp2: .*{words}"):
        plan_layout(engine, read_placement("shared", ()), processor, "float32", "none", "none", CPU)


def test_the_page_says_which_encoders_can_be_divided() -> None:
    page = (REPOSITORY / "docs" / "models.md").read_text()
    section = page.partition("## Over several ranks")[2].partition("\n## ")[0].partition("`tpN`")[2]
    divided = [kind for kind in sorted(FAMILIES) if divides_encoder(SimpleNamespace(model_type=kind))]
    assert re.findall("`(.+?)`", section) == divided


def test_the_bundled_model_answers_as_on_one_rank() -> None:
    ours = load_processor(BUNDLED)
    plan = ours.plan_image(168, 112, MediaOptions())
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}]
    random = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (plan.patches, ours.patch_row_bytes), dtype=torch.uint8, generator=random)

    def answer(loop: Loop) -> list[list[int]]:
        return loop.generate([Request(ours.prompt(messages, [plan]), patches)], 8)

    alone = Loop(make_adapter(BUNDLED, torch.float32))
    try:
        expected = answer(alone)
    finally:
        alone.close()
    with ranks_of(BUNDLED, 2, encoder=EncoderRanks(tensor=2)) as loop:
        assert answer(loop) == expected


def test_each_gpu_stores_what_its_rank_encodes_with(checkpoint: Path) -> None:
    """In the host's memory it is stored once for all that have the same."""
    config, ranks = load_config(checkpoint), EncoderRanks(data=2, tensor=1)
    assert [part.encoder.stored for part in parts_of(config, 2, ranks)] == [True, False]
    assert [part.encoder.stored for part in parts_of(config, 2, ranks, apart=True)] == [True, True]
    assert [part.encoder.stored for part in parts_of(config, 2, read_encoder_ranks("", 2), apart=True)] == [True, False]
