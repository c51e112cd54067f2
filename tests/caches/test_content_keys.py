"""Keys are equal exactly where all that a page or a visual token depends on is equal."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.engine.media_digest import MediaDigests
from unifiedserve.engine.requests.spool import Spool
from unifiedserve.memory.content_keys import MediaTokens, medium_key, page_key, page_keys, unit_key
from unifiedserve.messages.api import MediaInput

NO_MEDIA = MediaTokens([], [])
VISUAL = 99


def keys(token_ids: list[int], media: list[tuple[bytes, int]], page_tokens: int = 4) -> list[bytes]:
    positions = [i for i, token in enumerate(token_ids) if token == VISUAL]
    return page_keys(token_ids, page_tokens, MediaTokens(positions, media))


@given(st.lists(st.integers(0, 2), max_size=24), st.lists(st.integers(0, 2), max_size=24), st.integers(1, 5))
def test_pages_are_equal_as_far_as_the_tokens_are(one: list[int], other: list[int], page_tokens: int) -> None:
    first, second = (page_keys(tokens, page_tokens, NO_MEDIA) for tokens in (one, other))
    assert len(first) == len(one) // page_tokens
    for i, (left, right) in enumerate(zip(first, second, strict=False)):
        stop = (i + 1) * page_tokens
        assert (left == right) == (one[:stop] == other[:stop])


@given(st.lists(st.integers(0, 2), max_size=24), st.integers(0, 24), st.integers(1, 5))
def test_keys_that_are_known_are_not_computed_again(tokens: list[int], prompt: int, page_tokens: int) -> None:
    whole = page_keys(tokens, page_tokens, NO_MEDIA)
    known = page_keys(tokens[:prompt], page_tokens, NO_MEDIA)
    assert page_keys(tokens, page_tokens, NO_MEDIA, known) == whole
    assert page_keys([9] * len(tokens), page_tokens, NO_MEDIA, known)[: len(known)] == known


def test_the_media_count_from_their_first_token_on() -> None:
    tokens = [1, 2, 3, 4, 5, VISUAL, VISUAL, 6, 7, VISUAL, VISUAL, VISUAL, VISUAL, 8, 9, 10]
    base = keys(tokens, [(b"cat", 2), (b"dog", 4)])
    second_differs = keys(tokens, [(b"cat", 2), (b"cow", 4)])
    first_differs = keys(tokens, [(b"ant", 2), (b"dog", 4)])
    assert [a == b for a, b in zip(base, second_differs, strict=True)] == [True, True, False, False]
    assert [a == b for a, b in zip(base, first_differs, strict=True)] == [True, False, False, False]


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(0, 12), st.data())
def test_which_media_have_tokens_in_a_span(visual: list[bool], start: int, length: int, data: st.DataObject) -> None:
    positions = [i for i, is_visual in enumerate(visual) if is_visual]
    sizes: list[int] = []
    while sum(sizes) < len(positions):
        sizes.append(data.draw(st.integers(1, len(positions) - sum(sizes))))
    owners = [bytes([i]) for i, size in enumerate(sizes) for _ in range(size)]
    media = MediaTokens(positions, [(bytes([i]), size) for i, size in enumerate(sizes)])
    there = {owner for owner, at in zip(owners, positions, strict=True) if start <= at < start + length}
    assert media.within(start, start + length) == sorted(there)


def test_a_generated_page_has_the_key_that_it_would_have_in_a_prompt() -> None:
    tokens = [1, 2, VISUAL, VISUAL, 5, 6, 7, 8, 9]
    whole = keys(tokens, [(b"cat", 2)])
    media = MediaTokens([2, 3], [(b"cat", 2)])
    assert page_key(bytes(16), tokens[:4], media.within(0, 4)) == whole[0]
    assert page_key(whole[0], tokens[4:8]) == whole[1]
    assert page_key(bytes(16), tokens[:4]) != whole[0], "there the token is no more than a token"


def test_the_same_bytes_seen_otherwise_are_another_medium() -> None:
    assert medium_key(b"c" * 16, b"8 frames") != medium_key(b"c" * 16, b"9 frames")
    assert medium_key(b"c" * 16, b"8 frames") != medium_key(b"d" * 16, b"8 frames")
    assert len({unit_key(medium_key(b"c" * 16, b"8 frames"), unit) for unit in range(300)}) == 300


def test_a_file_counts_by_its_contents(tmp_path: Path) -> None:
    digests = MediaDigests()
    one, other = tmp_path / "one.mp4", tmp_path / "other.mp4"
    one.write_bytes(b"video" * 1000)
    other.write_bytes(b"video" * 1000)
    first = digests.of(MediaInput(kind="video", path=str(one)))
    assert first == digests.of(MediaInput(kind="video", path=str(other)))
    spooled, spool = MediaInput(kind="video", data=b"video" * 1000), Spool("test-{}".format, 1)
    with closing(spool):
        spool.take([spooled])
        assert first == digests.of(spooled)
    one.write_bytes(b"other" * 1001)
    assert digests.of(MediaInput(kind="video", path=str(one))) != first
    one.unlink()
    with pytest.raises(OSError, match=r"one\.mp4"):
        digests.of(MediaInput(kind="video", path=str(one)))
