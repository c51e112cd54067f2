"""What is cached in one memory is found there, and in no other."""

from types import SimpleNamespace
from typing import Any, cast

from unifiedserve.config import EngineConfig
from unifiedserve.engine.caches import Caches, PromptContents, contents_of
from unifiedserve.memory.content_keys import MediaTokens
from unifiedserve.messages.pages import PageOffer, Pages
from unifiedserve.messages.wire import Kept, Reuse
from unifiedserve.placement import read_placement

PAGE = 4
TOKENS = list(range(20))


class Pool:
    """Pages that nobody takes anew."""

    def renew(self, pages: tuple[int, ...], epochs: tuple[int, ...]) -> tuple[int, int]:
        return len(pages), 0


def caches(**options: Any) -> Caches:
    pools = {(memory, name): Pool() for memory in ("mem0", "mem1") for name in ("kv", "patch", "visual")}
    placement = read_placement("v@mem2+epd@mem0+2epd@mem1", ())
    return Caches(
        EngineConfig.of(**options), placement, cast(Any, pools), cast(Any, SimpleNamespace(shares_prefixes=True))
    )


def test_a_prefix_is_found_by_prefill_in_the_memory_of_who_computed_it() -> None:
    known = caches()
    contents = contents_of(cast(Any, SimpleNamespace(token_ids=TOKENS, media=[])), [], [], PAGE)
    first, *_ = contents.page_keys
    known.learn("language-3", [Kept("kv", first, Pages((7,), (1,)))])
    assert [known.look_up(f"language-{n}", TOKENS, contents).reuse for n in (1, 2, 3)] == [
        Reuse(),
        Reuse(prefix=Pages((7,), (1,))),
        Reuse(prefix=Pages((7,), (1,))),
    ]
    known.learn("language-1", [Kept("kv", first, Pages((3,), (9,)))])
    assert known.look_up("language-1", TOKENS, contents).reuse.prefix == Pages((3,), (9,))
    assert known.look_up("language-2", TOKENS, contents).reuse.prefix == Pages((7,), (1,))
    assert known.look_up("language-2", TOKENS, contents, whole=True).reuse == Reuse()


def test_keys_are_those_of_what_is_remembered_at_all() -> None:
    contents = contents_of(cast(Any, SimpleNamespace(token_ids=TOKENS, media=[])), [], [], PAGE)
    assert caches().look_up("language-1", TOKENS, contents).page_keys == contents.page_keys
    assert caches(no_prefix_cache=True).look_up("language-1", TOKENS, contents).page_keys is None


def test_units_that_another_memory_has_whole_are_offered_from_there() -> None:
    """All that are missing, from one that can be read: with a part of them, media would be decoded all the same."""
    known, here, there, also = caches(), Pages((7,), (1,)), Pages((8,), (2,)), Pages((9,), (2,))
    contents = PromptContents(PAGE, MediaTokens([], []), [], [], [b"first", b"second"], [4, 8])

    def found() -> Reuse:
        return known.look_up("language-1", TOKENS, contents, whole=True).reuse

    known.learn("language-2", [Kept("visual", b"first", there)], "tcp://there")
    assert found() == Reuse()
    known.learn("language-2", [Kept("visual", b"second", also)], "tcp://there")
    offers = [PageOffer("language-2", "tcp://there", visual=pages) for pages in (there, also)]
    assert found() == Reuse(offers=dict(enumerate(offers)))
    known.learn("language-1", [Kept("visual", b"first", here)], "tcp://here")
    assert found() == Reuse(units={0: here}, offers={1: offers[1]})
    assert [found().has(unit) for unit in range(2)] == [True, True]
    known.forget_addresses()
    assert found() == Reuse(units={0: here})
