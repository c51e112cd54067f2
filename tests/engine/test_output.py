"""What clients see of an answer, whatever its tokens and stop strings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.engine.requests.answer import Answer
from unifiedserve.messages.api import Delta, TokenLogprob
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Token
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor

STOPS = st.text(alphabet="ab é", min_size=1, max_size=3)
WORDS = st.text(alphabet="ab é\n中🙂", max_size=30)


@pytest.fixture(scope="module")
def processor(checkpoint: Path) -> Processor:
    return load_processor(checkpoint)


def stream(processor: Processor, token_ids: list[int], stop: tuple[str, ...] = (), eos: bool = False) -> list[Delta]:
    answer = Answer(processor.tokenizer, SamplingParams(stop=stop), prompt_tokens=3)
    ids = [*token_ids, processor.eos_token_ids[0]] if eos else token_ids
    deltas = []
    for i, token in enumerate(ids):
        finish = None if i + 1 < len(ids) else "stop" if eos else "length"
        delta = answer.push(Token(7, 0, i, TokenLogprob(token), finish))
        if delta is not None:
            deltas.append(delta)
        if answer.finished:
            break
    return deltas


@given(text=WORDS.filter(bool), eos=st.booleans())
def test_the_pieces_are_the_whole_text(processor: Processor, text: str, eos: bool) -> None:
    ids = processor.tokenizer.encode(text, add_special_tokens=False)
    deltas = stream(processor, ids, eos=eos)
    assert "".join(delta.text for delta in deltas) == processor.tokenizer.decode(ids)
    assert [token for delta in deltas for token in delta.token_ids][: len(ids)] == ids
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["stop" if eos else "length"]
    assert deltas[-1].generated_tokens == len(ids) + eos


@given(text=WORDS.filter(bool), stops=st.lists(STOPS, min_size=1, max_size=3))
def test_text_ends_before_the_first_stop_string(processor: Processor, text: str, stops: list[str]) -> None:
    ids = processor.tokenizer.encode(text, add_special_tokens=False)
    deltas = stream(processor, ids, tuple(stops))
    shown = "".join(delta.text for delta in deltas)
    whole = processor.tokenizer.decode(ids)
    assert whole.startswith(shown)
    assert not any(stop in shown for stop in stops)
    if deltas[-1].finish_reason == "stop":
        assert deltas[-1].stop_reason in stops
        assert whole[len(shown) :].startswith(str(deltas[-1].stop_reason))
    else:
        assert shown == whole


def test_every_token_comes_at_once_if_no_stop_string_may_begin(processor: Processor) -> None:
    ids = processor.tokenizer.encode("a 🙂 é", add_special_tokens=False)
    deltas = stream(processor, ids)
    assert [delta.token_ids for delta in deltas] == [[token] for token in ids]
    assert any(delta.text == "" for delta in deltas)


def test_a_cut_character_at_the_end_is_shown_as_replacement(processor: Processor) -> None:
    ids = processor.tokenizer.encode("🙂", add_special_tokens=False)
    assert len(ids) > 1
    deltas = stream(processor, ids[:-1])
    assert "".join(delta.text for delta in deltas) == processor.tokenizer.decode(ids[:-1])
