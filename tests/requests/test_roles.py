"""What instances host, as they change and all are restarted."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.config import EngineConfig
from unifiedserve.engine.roles import Roles
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.memory.shared import MemoryLayout, PoolSize
from unifiedserve.placement import FIRST_MEMORY, RoleChange, Stage, letters_of

NAMES = ["vision-1", "vision-2", "encode-1", "encode-2", "prefill-1", "prefill-2", "decode-1", "decode-2"]
LETTERS = st.sets(st.sampled_from("vepd"), min_size=1).map(lambda letters: "".join(sorted(letters)))

SIZE = PoolSize(1, 1)
HOST = {FIRST_MEMORY: MemoryLayout(SIZE, SIZE, SIZE)}
GPU = {FIRST_MEMORY: MemoryLayout(SIZE, SIZE, SIZE, place="cuda:0")}


def fresh(placement: str = "2v+2e+2p+2d") -> Roles:
    return Roles(EngineConfig.of(placement=placement, sandbox="off"))


def hosted(roles: Roles) -> dict[str, str]:
    return {instance.name: letters_of(instance.stages) for instance in roles.placement.instances}


@given(st.lists(st.tuples(st.sampled_from(["begin", "drained", "end", "restart"]), st.sampled_from(NAMES), LETTERS)))
def test_whatever_changes_when_all_stages_are_open_and_what_was_wanted_last_comes(
    events: list[tuple[str, str, str]],
) -> None:
    roles = fresh()
    under_way: dict[str, RoleChange] = {}
    wanted = hosted(roles)
    for event, name, letters in events:
        change = under_way.get(name)
        if event == "begin":
            with suppress(RequestError):
                if begun := roles.begin(name, letters, HOST):
                    under_way[name] = begun
                    wanted[name] = letters_of(begun.after.stages)
        elif event == "restart":
            roles.restart()
            assert not any(map(roles.goes_on, under_way.values()))
            under_way.clear()
            assert hosted(roles) == wanted
        elif change and event == "drained" and change.state == "draining":
            roles.drained(change)
        elif change and event == "end" and change.state == "starting":
            roles.end(under_way.pop(name))
        assert all(roles.open.hosts(stage) for stage in Stage)
        assert {each.name for each in roles.open.instances} == {*NAMES} - {*under_way}
        waiting = {each for each, change in under_way.items() if change.state == "draining"}
        now = hosted(roles)
        assert {each: now[each] for each in NAMES if each not in waiting} == {
            each: wanted[each] for each in NAMES if each not in waiting
        }


@pytest.mark.parametrize(
    ("ask", "kind", "told"),
    [
        (lambda roles: roles.begin("encode", "p", HOST), ErrorKind.NOT_FOUND, "there is no worker"),
        (lambda roles: roles.begin("encode-1", "q", HOST), ErrorKind.INVALID, "'q' in 'q' is no stage"),
        (lambda roles: roles.begin("encode-1", "pp", HOST), ErrorKind.INVALID, "names prefill twice"),
        (lambda roles: roles.begin("vision", "p", HOST), ErrorKind.CONFLICT, "the last worker that"),
        (lambda roles: roles.begin("prefill", "pd", HOST), ErrorKind.CONFLICT, "the last worker that"),
        (lambda roles: roles.begin("encode-1", "d", GPU), ErrorKind.CONFLICT, "GPU's memory"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(ask: Callable[[Roles], object], kind: ErrorKind, told: str) -> None:
    roles = fresh("2e+p+d")
    before = roles.seen()
    with pytest.raises(RequestError) as refused:
        ask(roles)
    assert (refused.value.kind, told in refused.value.message) == (kind, True), refused.value.message
    assert roles.seen() == before


def test_a_change_is_refused_while_another_of_it_is_under_way() -> None:
    roles = fresh()
    assert roles.begin("encode-2", "p", HOST)
    with pytest.raises(RequestError, match="the worker encode-2 is changing to p already"):
        roles.begin("encode-2", "e", HOST)
    assert roles.begin("prefill-1", "p", HOST) is None


def test_a_worker_hosts_what_its_memory_has_what_is_needed_for() -> None:
    """A change that its memory has no pages or weights for is refused, and says what it has them for."""
    nothing = PoolSize(0, 1)
    memories = {
        "mem0": MemoryLayout(nothing, SIZE, SIZE, stages=(Stage.VISION, Stage.ENCODE)),
        "mem1": MemoryLayout(SIZE, nothing, SIZE, stages=(Stage.VISION, Stage.PREFILL, Stage.DECODE)),
    }
    roles = fresh("2e@mem0+2p@mem1+2d@mem1")
    with pytest.raises(RequestError, match="encode-2 cannot host prefill and decode: its memory mem0 was laid out"):
        roles.begin("encode-2", "epd", memories)
    with pytest.raises(RequestError, match="at the start for vision and prefill and decode") as refused:
        roles.begin("decode-1", "e", memories)
    assert refused.value.kind is ErrorKind.CONFLICT
    assert roles.begin("decode-1", "p", memories)


def test_visual_tokens_that_answers_keep_never_come_back_to_where_they_were_encoded() -> None:
    """Else requests could wait for each other's pages there; other models may use such placements."""
    roles, memories = fresh("e+2p+d+p@mem1"), dict.fromkeys(("mem0", "mem1"), HOST[FIRST_MEMORY])
    assert roles.begin("prefill-1", "e", memories, keeps_visual=True)
    with pytest.raises(RequestError, match="answers of this model hold visual tokens") as refused:
        roles.begin("prefill-2", "e", memories, keeps_visual=True)
    assert refused.value.kind is ErrorKind.CONFLICT
    assert roles.begin("prefill-2", "e", memories)


def test_a_sandbox_that_is_required_stays() -> None:
    roles = Roles(EngineConfig.of(placement="2v+2e+p+d", sandbox="require"))
    with pytest.raises(RequestError, match="sandbox"):
        roles.begin("encode-2", "ve", HOST)
