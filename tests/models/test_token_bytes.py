"""The bytes of a text's tokens are the text, whatever kind of tokenizer cuts it, and characters know where they are."""

import itertools
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from unifiedserve.models.token_bytes import TokenBytes
from unifiedserve.server.answers.token_reader import TokenReader

CORPUS = ["the river runs to the sea, and the sea is far", "ein Fluß fließt", "日本 の 川", "é 😀"]
ADDED = ["<|end|>", "<pad>"]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(prefix_space: bool = False) -> Tokenizer:
    """As GPT-2's, Qwen's and Llama 3's."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    return made


def sentencepiece() -> Tokenizer:
    """As Llama's and Mistral's: spaces are \u2581, and bytes stand for what is not in the vocabulary."""
    letters = sorted(set("".join(CORPUS[:2])) - {" "} | {"\u2581"})
    vocabulary = {token: number for number, token in enumerate(["<unk>", *BYTE_TOKENS, *letters])}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    return made


def metaspace() -> Tokenizer:
    """As T5's."""
    made = Tokenizer(
        models.Unigram([("<unk>", -9.0), ("\u2581", -1.0), *((chr(code), -2.0) for code in range(0x21, 0x250))], 0)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


KINDS: dict[str, tuple[Callable[[], Tokenizer], st.SearchStrategy[str]]] = {
    "byte level": (byte_level, st.text()),
    "sentencepiece": (sentencepiece, st.text()),
    "metaspace": (metaspace, st.text(st.characters(min_codepoint=0x21, max_codepoint=0x24F))),
}


@cache
def made(kind: str) -> Any:
    backend = KINDS[kind][0]()
    backend.add_special_tokens([AddedToken(ADDED[0])])
    backend.add_tokens([AddedToken(ADDED[1], special=False)])
    return backend


def token_bytes(backend: Any) -> TokenBytes:
    return TokenBytes(SimpleNamespace(backend_tokenizer=backend))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_bytes_join_to_what_the_tokenizer_decodes(kind: str, data: st.DataObject) -> None:
    backend = made(kind)
    words = st.one_of(KINDS[kind][1], st.sampled_from([*CORPUS, *ADDED, "a ", " b"]))
    text = "".join(data.draw(st.lists(words, max_size=5)))
    ids = backend.encode(text).ids
    reader = TokenReader(token_bytes(backend))
    pieces, offsets = zip(*map(reader.read, ids), strict=True) if ids else ((), ())
    shown = backend.decode(ids)
    assert b"".join(piece.bytes for piece in pieces) == shown.encode()
    assert list(offsets) == sorted(offsets)
    assert reader.offset == len(shown)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_tokens_have_offsets_that_never_fall(kind: str, data: st.DataObject) -> None:
    backend = made(kind)
    ids = data.draw(st.lists(st.integers(0, backend.get_vocab_size() + 3), max_size=12))
    reader = TokenReader(token_bytes(backend))
    offsets = [reader.read(token)[1] for token in ids]
    assert all(before <= after for before, after in itertools.pairwise(offsets))


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_prompt_counts_what_it_shows(kind: str) -> None:
    """Special tokens that it names as text do; one that the tokenizer puts before it does not."""
    backend, end = made(kind), made(kind).token_to_id(ADDED[0])
    tokens = token_bytes(backend)
    for text in ("the sea", f"the{ADDED[0]}") + ((" to the sea",) if kind != "metaspace" else ()):
        ids = backend.encode(text).ids
        for opening in ([], [end]):
            reader = TokenReader(tokens, text)
            offsets = [reader.read(token)[1] for token in [*opening, *ids]]
            assert offsets[: len(opening) + 1] == [0] * (len(opening) + 1)
            assert reader.offset == len(text)


def test_tokens_of_other_tokenizers_are_decoded_alone() -> None:
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "river": 1, "##s": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    tokens = token_bytes(backend)
    assert [tokens[token].bytes for token in backend.encode("rivers").ids] == [b"river", b"##s"]
