"""What every carrier does, whatever it is made of."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sides import SETTING, SIZES, TOKEN, MakeSide, Side, unique_name
from source_process import StartSource

from ipc_buffers import Bell, MessageQueue, PageError
from unifiedserve.carriers.base import Copy
from unifiedserve.carriers.choose import open_carrier


def test_pages_arrive_as_they_were(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    offers = [source.fill("kv", 20), source.fill("visual", 7), source.fill("kv", 1)]
    into = [target.take(offer.name, len(offer.pages)) for offer in offers]
    done = target.fetch(source.address, *(offer.into(pages) for offer, pages in zip(offers, into, strict=True)))
    assert done.error == ""
    assert done.bytes == sum(offer.contents.nbytes for offer in offers)
    assert done.seconds > 0
    for offer, pages in zip(offers, into, strict=True):
        assert (target.bytes[offer.name][pages] == offer.contents).all()


@pytest.mark.parametrize("page_bytes", [1, 1000, 4096, (1 << 20) + 8, 4 << 20])
def test_pages_of_any_size(kind: str, make_side: MakeSide, page_bytes: int) -> None:
    sizes = {"kv": (5, page_bytes)}
    source, target = make_side(kind, sizes=sizes), make_side(kind, sizes=sizes)
    offer, into = source.fill("kv", 3), target.take("kv", 3)
    others = [page for page in range(5) if page not in into]
    target.bytes["kv"][others] = 7
    assert target.fetch(source.address, offer.into(into)).error == ""
    assert (target.bytes["kv"][into] == offer.contents).all()
    assert (target.bytes["kv"][others] == 7).all()


def test_nothing_can_be_read_as_well(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    for copies in ([], [Copy("kv", [], [], [])]):
        done = target.fetch(source.address, *copies)
        assert (done.error, done.bytes) == ("", 0)


def test_many_are_under_way_at_once(kind: str, make_side: MakeSide) -> None:
    """From several sources, one of them itself, into one target."""
    sizes = {"kv": (400, 4096)}
    target = make_side(kind, sizes=sizes)
    sources = [target, make_side(kind, sizes=sizes), make_side(kind, sizes=sizes)]
    wanted = []
    for number in range(90):
        source = sources[number % 3]
        offer, into = source.fill("kv", 2), target.take("kv", 2)
        wanted.append((target.carrier.read(source.address, [offer.into(into)]), into, offer.contents))
    for transfer, into, contents in reversed(wanted):
        assert target.wait(transfer)[0].error == ""
        assert (target.bytes["kv"][into] == contents).all()


def test_a_freed_page_is_still_there(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    offer, into = source.fill("kv", 4), target.take("kv", 4)
    source.pools["kv"].release(offer.pages)
    assert target.fetch(source.address, offer.into(into)).error == ""
    assert (target.bytes["kv"][into] == offer.contents).all()


def test_memory_of_a_source_that_has_ended_goes_back(make_side: MakeSide) -> None:
    """Its reader has it mapped, and gives it up when it reads from a new one, as from what has come in its place."""
    target, first = make_side("shared"), make_side("shared")
    inodes = {str(pool.inode) for pool in first.pools.values()}
    offer = first.fill("kv", 1)
    assert target.fetch(first.address, offer.into(target.take("kv", 1))).error == ""
    first.end()
    assert mapped() >= inodes
    second = make_side("shared")
    assert target.fetch(second.address, second.fill("kv", 1).into(target.take("kv", 1))).error == ""
    assert not mapped() & inodes


def mapped() -> set[str]:
    """Return the inodes of the files that this process has mapped."""
    return {line.split()[4] for line in Path("/proc/self/maps").read_text().splitlines()}


def test_a_page_that_was_taken_anew_is_named(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    offer, into = source.fill("kv", 4), target.take("kv", 4)
    gone = offer.pages[2]
    source.pools["kv"].release([gone])
    source.pools["kv"].allocate(source.pools["kv"].free_pages(), 2)
    done = target.fetch(source.address, offer.into(into))
    assert done.error.endswith(f"page {gone} of 'kv' has been taken anew")
    assert done.bytes == 0
    others = [place for place in range(4) if place != 2]
    partly = Copy("kv", [offer.pages[i] for i in others], [offer.epochs[i] for i in others], [into[i] for i in others])
    assert target.fetch(source.address, partly).error == "", "the others are still there"


def test_what_is_written_meanwhile_is_noticed(kind: str, make_side: MakeSide) -> None:
    """A page is filled with its epoch, offered and given away, over and over: what counts as read is of one epoch."""
    sizes = {"kv": (2, 256 << 10)}
    source, target = make_side(kind, sizes=sizes), make_side(kind, sizes=sizes)
    pool, into = source.pools["kv"], target.take("kv", 1)
    words, read = source.bytes["kv"].view(np.uint64), target.bytes["kv"].view(np.uint64)[into[0]]
    page = 1 - source.take("kv", 1)[0]
    offered = [0]
    ended = threading.Event()

    def fill_and_give_away() -> None:
        assert pool.allocate(1, 2) is not None
        words[page] = epoch = pool.epochs([page])[0]
        offered[0] = int(epoch)
        pool.release([page])

    def go_on() -> None:
        while not ended.is_set():
            fill_and_give_away()

    fill_and_give_away()
    assert target.fetch(source.address, Copy("kv", [page], offered, into)).error == ""
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for _ in range(150):
            epoch = offered[0]
            if not target.fetch(source.address, Copy("kv", [page], [epoch], into)).error:
                assert (read == epoch).all()
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("rounds", [30])
def test_nothing_is_written_after_close(kind: str, make_side: MakeSide, rounds: int) -> None:
    sizes = {"kv": (64, 256 << 10)}
    source, target = make_side(kind, sizes=sizes), make_side(kind, sizes=sizes)
    offer, last = source.fill("kv", 48), source.fill("kv", 1)
    into, there = target.take("kv", 48), target.take("kv", 1)
    for number in range(rounds):
        target.bytes["kv"][into] = number
        transfer = target.carrier.read(source.address, [offer.into(into)])
        if number % 3 == 1:
            target.fetch(source.address, last.into(there))  # so that it is under way, or done
        target.close(transfer)
        target.bytes["kv"][into] = 255 - number
        assert target.fetch(source.address, last.into(there)).error == ""
        assert (target.bytes["kv"][into] == 255 - number).all()
        assert transfer not in target.poll()
        target.carrier.close(transfer)
    assert target.fetch(source.address, offer.into(into)).error == ""
    assert (target.bytes["kv"][into] == offer.contents).all()


def test_close_of_what_has_ended_or_never_was(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    offer, into = source.fill("kv", 1), target.take("kv", 1)
    done = target.fetch(source.address, offer.into(into))
    for transfer in (done.transfer, 10**6):
        target.carrier.close(transfer)
    assert target.fetch(source.address, offer.into(into)).error == ""


def test_a_failure_can_be_closed(kind: str, make_side: MakeSide) -> None:
    target = make_side(kind)
    target.carrier.close(target.carrier.read("nonsense", []))
    assert target.poll() == {}


@pytest.mark.parametrize(
    "address", ["", "nonsense", "gopher://here?kv=1", "tcp://127.0.0.1:99999?server=1", "tcp://[?"]
)
def test_addresses_that_are_none(kind: str, make_side: MakeSide, address: str) -> None:
    target = make_side(kind)
    done = target.fetch(address, Copy("kv", [0], [0], target.take("kv", 1)))
    assert "is no address of a carrier" in done.error
    assert "\n" not in done.error


def test_another_description_is_named_on_both_sides(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind, replace(SETTING, description="tiny, bfloat16, 16 tokens a page")), make_side(kind)
    offer, into = source.fill("kv", 1), target.take("kv", 1)
    error = target.fetch(source.address, offer.into(into)).error
    assert "serves 'tiny, bfloat16, 16 tokens a page'" in error
    assert "'tiny, float32, 16 tokens a page'" in error


def test_another_page_size_is_named_on_both_sides(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind, sizes={"kv": (4, 8192)}), make_side(kind)
    offer, into = source.fill("kv", 1), target.take("kv", 1)
    error = target.fetch(source.address, offer.into(into)).error
    assert "pages of 'kv' of 8192 bytes, and this side of 4096" in error


def test_a_source_may_lack_pools_that_are_not_asked_for(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind, sizes={"visual": SIZES["visual"]}), make_side(kind)
    offer, into = source.fill("visual", 2), target.take("visual", 2)
    assert target.fetch(source.address, offer.into(into)).error == ""
    error = target.fetch(source.address, Copy("kv", [0], [0], target.take("kv", 1))).error
    assert "the source has no pool 'kv'" in error


@pytest.mark.parametrize("page", [64, 1000, -1])
def test_pages_that_a_source_does_not_have(kind: str, make_side: MakeSide, page: int) -> None:
    source, target = make_side(kind), make_side(kind, sizes={"kv": (2000, 4096)})
    copy = Copy("kv", [page], [0], target.take("kv", 1))
    if page < 0:
        with pytest.raises((PageError, ValueError)):
            target.fetch(source.address, copy)
    else:
        expected = f"page {page} is not in the source's pool 'kv' of 64 pages"
        assert target.fetch(source.address, copy).error.endswith(expected)


def test_what_is_wrong_on_this_side_is_raised(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    offer, into = source.fill("kv", 2), target.take("kv", 2)
    target.pools["kv"].release(into[:1])
    with pytest.raises(PageError, match=f"page {into[0]} .*is free"):
        target.carrier.read(source.address, [offer.into(into)])
    with pytest.raises(PageError, match="page 64 "):
        target.carrier.read(source.address, [offer.into([into[1], 64])])
    with pytest.raises(ValueError, match="no pool 'patch' has been registered"):
        target.carrier.read(source.address, [Copy("patch", [0], [0], [0])])
    with pytest.raises(ValueError, match="2 pages of 'kv' with 2 epochs, into 1"):
        target.carrier.read(source.address, [offer.into(into[:1])])


def test_shut_ends_what_is_under_way_and_all_threads(kind: str, make_side: MakeSide) -> None:
    sizes = {"kv": (64, 256 << 10)}
    source = make_side(kind, sizes=sizes)
    offer = source.fill("kv", 64)

    def round_() -> None:
        target = Side(kind, sizes=sizes)
        into = target.take("kv", 64)
        target.carrier.read(source.address, [offer.into(into)])
        target.carrier.shut()
        target.bytes["kv"][into] = 9
        target.carrier.shut()
        assert (target.bytes["kv"][into] == 9).all()
        target.remove_memory()

    round_()  # what is made once stays
    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        round_()
    assert len(os.listdir("/proc/self/task")) <= threads
    while len(os.listdir("/proc/self/fd")) > files + 1:  # the source has not noticed all
        os.sched_yield()


def test_nothing_is_read_by_who_is_shut(kind: str, make_side: MakeSide) -> None:
    source, target = make_side(kind), make_side(kind)
    offer, into = source.fill("kv", 1), target.take("kv", 1)
    target.carrier.shut()
    with pytest.raises(RuntimeError, match="shut"):
        target.carrier.read(source.address, [offer.into(into)])


def test_a_process_reads_from_another(kind: str, make_side: MakeSide, start_source: StartSource) -> None:
    here, there = make_side(kind), start_source(kind, TOKEN)
    pages, epochs = there.fill("kv", 5, 42)
    into = here.take("kv", 5)
    assert here.fetch(there.address, Copy("kv", pages, epochs, into)).error == ""
    assert (here.bytes["kv"][into] == 42).all()
    offer = here.fill("visual", 3)
    assert there.fetch(here.address, "visual", offer.pages, offer.epochs) == ("", offer.contents[:, 0].tolist())


@pytest.mark.parametrize("step", ["before", "meanwhile", "after"])
def test_a_source_that_is_killed(kind: str, make_side: MakeSide, start_source: StartSource, step: str) -> None:
    """Either all pages come, or an error says that they do not; the next source is read as if nothing had been."""
    patience = 2.0 if kind == "nixl" else SETTING.patience  # the kernel tells at once who has died; NIXL does not
    target, living = make_side(kind, replace(SETTING, patience=patience)), make_side(kind)
    dying = start_source(kind, TOKEN)
    pages, epochs = dying.fill("kv", 60, 5)
    into = target.take("kv", 60)
    if step == "after":
        assert target.fetch(dying.address, Copy("kv", pages, epochs, into)).error == ""
    if step != "meanwhile":
        dying.kill()
    target.bytes["kv"][into] = 0
    transfer = target.carrier.read(dying.address, [Copy("kv", pages, epochs, into)])
    dying.kill()
    (done,) = target.wait(transfer)
    assert done.error or (target.bytes["kv"][into] == 5).all()
    assert not (kind == "shared" and done.error), "it needs nobody"
    offer, there = living.fill("kv", 1), target.take("kv", 1)
    assert target.fetch(living.address, offer.into(there)).error == ""


def test_a_reader_that_is_killed(kind: str, make_side: MakeSide, start_source: StartSource) -> None:
    source, other = make_side(kind), make_side(kind)
    offer = source.fill("kv", 60)
    for _ in range(3):
        dying = start_source(kind, TOKEN)
        dying.ask("begin", source.address, "kv", offer.pages, offer.epochs)
        dying.kill()
    into = other.take("kv", 60)
    assert other.fetch(source.address, offer.into(into)).error == ""
    assert (other.bytes["kv"][into] == offer.contents).all()


def test_a_source_that_is_stopped(kind: str, make_side: MakeSide, start_source: StartSource) -> None:
    target, stopped = make_side(kind, replace(SETTING, patience=0.2)), start_source(kind, TOKEN)
    pages, epochs = stopped.fill("kv", 1, 8)
    stopped.stop()
    done = target.fetch(stopped.address, Copy("kv", pages, epochs, target.take("kv", 1)))
    if kind == "shared":
        assert done.error == "", "it needs nobody"
    elif kind == "tcp":
        assert "sent nothing that was waited for in 0.2" in done.error


def test_the_bell_may_ring_before_read_returns(kind: str) -> None:
    """Whoever is woken finds what has ended, though `read` has not told its number yet."""
    side = Side(kind)
    news = MessageQueue.create(unique_name(), 256)
    carrier = open_carrier(kind, SETTING, Bell(news, b"look"))
    carrier.register(side.pools)
    failed = carrier.read("nonsense", [])
    assert news.receive() == b"look"
    assert [done.transfer for done in carrier.poll()] == [failed]
    carrier.shut()
    news.unlink()
    side.end()


def test_a_bell_that_nobody_hears_holds_nobody_up(kind: str) -> None:
    """A full queue has a reader that will look; nobody waits for it, and nothing is lost."""
    side = Side(kind, sizes={"kv": (64, 64)})
    news = MessageQueue.create(unique_name(), 64)
    carrier = open_carrier(kind, SETTING, Bell(news, b"look"))
    carrier.register(side.pools)
    while news.pending() < 4:
        news.send(b"full")
    offer, into = side.fill("kv", 20), side.take("kv", 20)
    transfers = {carrier.read(carrier.address, [offer.into(into)]) for _ in range(20)}
    while transfers:
        transfers -= {done.transfer for done in carrier.poll()}
    carrier.shut()
    news.unlink()
    side.end()
