"""The index of what is cached, over a model of a page pool: it never names pages that hold something else."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from unifiedserve.memory.content_index import ContentIndex
from unifiedserve.messages.pages import Pages


class Pool:
    """Contents, references and ages of pages, as `ipc_buffers.PagePool` keeps them."""

    def __init__(self, pages: int) -> None:
        self.epochs = [0] * pages
        self.references = [0] * pages
        self.last_used = [0] * pages
        self.contents: list[bytes | None] = [None] * pages
        self.uses = 0

    def take(self) -> int | None:
        """The free page unused for longest."""
        free = [page for page, references in enumerate(self.references) if not references]
        if not free:
            return None
        page = min(free, key=lambda page: self.last_used[page])
        self.epochs[page] += 1
        self.references[page] = 1
        self.contents[page] = None
        return page

    def renew(self, pages: Sequence[int], epochs: Sequence[int], /) -> tuple[int, int]:
        valid = 0
        while valid < len(pages) and self.epochs[pages[valid]] == epochs[valid]:
            valid += 1
        self.use(pages[:valid])
        return valid, sum(self.references[page] > 0 for page in pages[:valid])

    def use(self, pages: Sequence[int]) -> None:
        self.uses += len(pages)
        for age, page in enumerate(pages):
            self.last_used[page] = self.uses - age


class IndexMachine(RuleBasedStateMachine):
    """Requests are strings of a few letters, one letter a page; a page's content is the string up to it."""

    @initialize(pages=st.integers(1, 12))
    def start(self, pages: int) -> None:
        self.pool = Pool(pages)
        self.index = ContentIndex(self.pool)
        self.running: list[list[int]] = []

    @rule(text=st.text("ab", max_size=8))
    def serve(self, text: str) -> None:
        """What the index finds is taken up, and the rest computed, or nothing if there are too few pages."""
        keys = [text[: end + 1].encode() for end in range(len(text))]
        found = self.index.prefix(keys)
        held = list(found.numbers)
        for page, key in zip(held, keys, strict=False):
            assert self.pool.contents[page] == key
            self.pool.references[page] += 1
        for key in keys[len(held) :]:
            page = self.pool.take()
            if page is None:
                break
            held.append(page)
            self.pool.contents[page] = key
            self.pool.use([page])
            self.index.put(key, Pages((page,), (self.pool.epochs[page],)))
        self.running.append(held)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        held = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.pool.use(held)
        for page in held:
            self.pool.references[page] -= 1

    @rule(text=st.text("ab", min_size=1, max_size=8))
    def look_up_alone(self, text: str) -> None:
        found = self.index.get(text.encode())
        assert found is None or [self.pool.contents[page] for page in found.numbers] == [text.encode()]

    @invariant()
    def no_more_entries_than_pages(self) -> None:
        if hasattr(self, "index"):
            assert len(self.index) <= len(self.pool.epochs)

    @invariant()
    def references_are_those_of_requests(self) -> None:
        for page, references in enumerate(self.pool.references if hasattr(self, "pool") else ()):
            assert references == sum(held.count(page) for held in self.running)


IndexMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestIndexMachine = IndexMachine.TestCase


def entry(pool: Pool, index: ContentIndex, key: bytes, count: int = 1) -> list[int]:
    pages = [page for page in (pool.take() for _ in range(count)) if page is not None]
    index.put(key, Pages(tuple(pages), tuple(pool.epochs[page] for page in pages)))
    pool.use(pages)
    for page in pages:
        pool.references[page] = 0
    return pages


def test_what_was_looked_up_lately_stays_longest() -> None:
    pool = Pool(3)
    index = ContentIndex(pool)
    pages = {key: entry(pool, index, key) for key in (b"a", b"b", b"c")}
    index.get(b"a")
    assert [pool.take()] == pages[b"b"]
    assert index.get(b"b") is None
    assert index.get(b"a") is not None
    assert [pool.take()] == pages[b"c"]


def test_a_content_of_several_pages_is_whole_or_gone() -> None:
    pool = Pool(4)
    index = ContentIndex(pool)
    entry(pool, index, b"unit", 3)
    assert index.get(b"unit") == Pages((0, 1, 2), (1, 1, 1))
    entry(pool, index, b"one")
    entry(pool, index, b"two")
    assert index.get(b"unit") is None
    assert len(index) == 2


def test_a_prefix_ends_at_the_first_page_that_is_gone() -> None:
    pool = Pool(3)
    index = ContentIndex(pool)
    for key in (b"a", b"ab", b"abc"):
        entry(pool, index, key)
    index.get(b"a")
    index.get(b"abc")
    pool.take()
    assert index.prefix([b"a", b"ab", b"abc"]).numbers == (0,)
    assert index.prefix([b"x", b"a"]) == Pages()
