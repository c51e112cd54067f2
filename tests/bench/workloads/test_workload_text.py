"""Texts have the length asked for, and begin alike only where that is meant."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Encoder

from unifiedserve.bench.workloads.text import Estimate, Tokenizer, Writer
from unifiedserve.errors import ConfigError

MODEL = Path(__file__).parents[3] / "unifiedserve" / "bundled_model" / "tokenizer.json"
ENCODER = Encoder.from_file(str(MODEL))
EXACT = Writer(Tokenizer(MODEL), seed=1)
WRITER = Writer(Estimate(), seed=1)


@settings(max_examples=40)
@given(st.integers(0, 10**7), st.integers(8, 600))
def test_with_a_tokenizer_the_length_is_exact(number: int, tokens: int) -> None:
    assert len(ENCODER.encode(EXACT.text(number, tokens)).ids) == tokens
    ids = [number + piece for piece in range(5)]
    assert len(ENCODER.encode(EXACT.blocks(ids, 128, tokens)).ids) == tokens


@settings(max_examples=40)
@given(st.integers(0, 10**7), st.integers(1, 600))
def test_without_one_it_is_a_token_a_word(number: int, tokens: int) -> None:
    assert len(WRITER.text(number, tokens).split()) == tokens
    assert WRITER.text(number, tokens) == Writer(Estimate(), seed=1).text(number, tokens)


def test_no_two_texts_begin_with_the_same_two_words() -> None:
    openings = {tuple(WRITER.text(number, 20).split()[:2]) for number in range(5000)}
    assert len(openings) == 5000


def test_another_seed_writes_other_texts() -> None:
    assert Writer(Estimate(), seed=2).text(3, 20) != WRITER.text(3, 20)


@pytest.mark.parametrize("writer", [WRITER, EXACT], ids=["estimated", "exact"])
def test_prompts_share_the_blocks_whose_ids_are_equal(writer: Writer) -> None:
    first, second = writer.blocks([7, 8, 9], 64, 180), writer.blocks([7, 8, 10], 64, 180)
    shared = writer.blocks([7, 8], 64, 128)
    assert first.startswith(f"{shared} ")
    assert second.startswith(f"{shared} ")
    assert first.removeprefix(shared).split()[0] != second.removeprefix(shared).split()[0]


@pytest.mark.parametrize(("content", "message"), [("{}", "no tokenizer.json"), (None, "No such file")])
def test_what_is_no_tokenizer_is_named(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        Tokenizer(path)
