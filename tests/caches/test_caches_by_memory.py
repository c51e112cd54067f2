"""What is cached in one memory is found there, and in no other."""

from types import SimpleNamespace
from typing import Any, cast

from unifiedserve.config import EngineConfig
from unifiedserve.engine.caches import Caches, contents_of
from unifiedserve.messages.pages import Pages
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
