"""From the nodes that there are to those that there should be, step by step."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.cluster.nodes.reconcile import Steps, next_steps
from unifiedserve.cluster.nodes.reports import NodeReport, Phase

OLD, NEW = "old", "new"


def node(name: str, phase: Phase = Phase.SERVING, revision: str = NEW) -> NodeReport:
    return NodeReport(name=name, pool="p", revision=revision, phase=phase)


def test_what_is_missing_is_started() -> None:
    assert next_steps(3, NEW, [node("0")]) == Steps(start=2)


def test_nothing_is_done_where_all_is_well() -> None:
    assert next_steps(2, NEW, [node("0"), node("1", Phase.STARTING)]) == Steps()


def test_the_last_ones_leave_and_those_that_do_not_serve_before_them() -> None:
    nodes = [node("0"), node("1", Phase.STARTING), node("2"), node("3")]
    assert next_steps(2, NEW, nodes) == Steps(drain=("1", "3"))


def test_what_drains_is_not_counted_and_what_has_stopped_is_removed() -> None:
    nodes = [node("0"), node("1", Phase.DRAINING), node("2", Phase.STOPPED)]
    assert next_steps(2, NEW, nodes) == Steps(start=1, remove=("2",))


def test_a_node_that_failed_is_not_started_again() -> None:
    assert next_steps(1, NEW, [node("0", Phase.FAILED)]) == Steps()
    assert next_steps(1, OLD, [node("0", Phase.FAILED)]) == Steps(start=1, remove=("0",))


def test_a_lone_node_is_replaced_before_it_drains() -> None:
    old = node("0", revision=OLD)
    assert next_steps(1, NEW, [old]) == Steps(start=1)
    assert next_steps(1, NEW, [old, node("1", Phase.STARTING)]) == Steps()
    assert next_steps(1, NEW, [old, node("1")]) == Steps(drain=("0",))


def test_of_several_one_drains_at_a_time() -> None:
    old = [node("0", revision=OLD), node("1", revision=OLD)]
    assert next_steps(2, NEW, old) == Steps(drain=("0",))
    assert next_steps(2, NEW, [node("0", Phase.DRAINING, OLD), old[1]]) == Steps(start=1)
    assert next_steps(2, NEW, [old[1], node("2", Phase.STARTING)]) == Steps()
    assert next_steps(2, NEW, [old[1], node("2")]) == Steps(drain=("1",))


def test_a_new_revision_that_fails_holds_up_the_others() -> None:
    assert next_steps(2, NEW, [node("1", revision=OLD), node("2", Phase.FAILED)]) == Steps()
    assert next_steps(1, NEW, [node("0", revision=OLD), node("1", Phase.FAILED)]) == Steps()


def test_old_nodes_that_do_not_serve_leave_at_once() -> None:
    old = [node("0", Phase.STARTING, OLD), node("1", Phase.CUT_OFF, OLD), node("2", revision=OLD)]
    assert next_steps(3, NEW, old) == Steps(drain=("0", "1"))


@dataclass
class World:
    """A pool whose nodes do as they are told, one change of phase at a time."""

    nodes: list[NodeReport] = field(default_factory=list)
    made: int = 0

    def apply(self, steps: Steps, revision: str) -> None:
        self.nodes = [each for each in self.nodes if each.name not in steps.remove]
        for name in steps.drain:
            self._change(next(each for each in self.nodes if each.name == name), Phase.DRAINING)
        for _ in range(steps.start):
            self.made += 1
            self.nodes.append(node(f"n{self.made}", Phase.WAITING, revision))

    def advance(self, choice: int) -> None:
        """Let one node go on that can."""
        after = {
            Phase.WAITING: Phase.STARTING,
            Phase.STARTING: Phase.SERVING,
            Phase.LOST: Phase.STARTING,
            Phase.CUT_OFF: Phase.SERVING,
            Phase.DRAINING: Phase.STOPPED,
        }
        able = [each for each in self.nodes if each.phase in after]
        if able:
            chosen = able[choice % len(able)]
            self._change(chosen, after[chosen.phase])

    def _change(self, old: NodeReport, phase: Phase) -> None:
        self.nodes[self.nodes.index(old)] = node(old.name, phase, old.revision)

    @property
    def serving(self) -> int:
        return sum(each.phase is Phase.SERVING for each in self.nodes)


@given(
    phases=st.lists(st.tuples(st.sampled_from(Phase), st.sampled_from([OLD, NEW])), max_size=6),
    target=st.integers(0, 5),
    choices=st.lists(st.integers(0, 20), min_size=80, max_size=80),
)
def test_every_pool_becomes_what_it_should_be_and_drains_leave_enough(
    phases: list[tuple[Phase, str]], target: int, choices: list[int]
) -> None:
    # one that fails as configured stays so: nothing here mends it
    known = [(phase, revision) for phase, revision in phases if (phase, revision) != (Phase.FAILED, NEW)]
    world = World([node(str(number), *each) for number, each in enumerate(known)])
    for choice in choices:
        before = world.serving
        world.apply(next_steps(target, NEW, world.nodes), NEW)
        if world.serving < before:
            assert world.serving >= min(target, max(1, target - 1))
        assert len(world.nodes) <= max(len(known), target) + target + 1
        world.advance(choice)
    assert [(each.phase, each.revision) for each in world.nodes] == [(Phase.SERVING, NEW)] * target
