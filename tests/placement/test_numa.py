"""A memory for each NUMA node: which workers have their pages there, and where the kernel takes them from."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.errors import ConfigError
from unifiedserve.memory.numa_policy import near_node
from unifiedserve.placement import read_placement
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.placement.numa import cores_of_ranks, nodes_of_ranks, place_by_node

SIX = range(6)
NODES = {0: (0, 1, 2), 1: (3, 4, 5)}


def memories(text: str) -> dict[str, str]:
    return {each.name: each.memory for each in place_by_node(read_placement(text, SIX), NODES).instances}


def test_pages_are_in_the_memory_of_a_workers_cores() -> None:
    assert memories("split") == {"vision": "mem0", "encode-prefill": "mem0", "decode": "mem1"}
    assert memories("ep@3-4+d@5") == {"vision": "mem1", "encode-prefill": "mem1", "decode": "mem1"}


def test_vision_may_use_cores_of_several_nodes() -> None:
    assert memories("v@2-3+ep@0-1+d@4-5")["encode-prefill"] == "mem0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("shared", "the worker encode-prefill may use cores of node0 and node1: give each worker those of one"),
        ("ep@0-3+d@4-5", "the worker encode-prefill may use cores of node0 and node1"),
        ("ep@0-1+d@4-5,mem1", "--placement ep@0-1+d@4-5,mem1 names memories itself: leave one of them out"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        memories(text)
    assert str(refused.value).startswith("--memories numa: ")
    assert says in str(refused.value)


def test_nodes_are_those_whose_cores_may_be_used(tmp_path: Path) -> None:
    for node, cores in enumerate(("0-2,8", "3-5", "", "9-12")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cores}\n")
    assert cores_by_node(SIX, tmp_path) == NODES
    assert cores_by_node((4, 9), tmp_path) == {1: (4,), 3: (9,)}
    assert cores_by_node(SIX, tmp_path / "none") == {0: tuple(SIX)}


def test_on_one_node_all_have_one_memory() -> None:
    placement = read_placement("shared", SIX)
    assert place_by_node(placement, {0: tuple(SIX)}).instances == placement.instances


def policy() -> str:
    """Return the kernel's word for the policy of this thread: that of memory that has none of its own."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/numa_maps").read_text().split()[1]


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="the kernel knows no NUMA nodes")
def test_memory_is_taken_from_a_node_and_then_from_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    before = policy()
    with near_node(0):
        if not caplog.records:  # else the kernel lets nobody choose
            assert policy() == "prefer:0"
    assert policy() == before
    with near_node(1000):
        assert "memory is not bound to node1000: " in caplog.text
        assert policy() == before
    with near_node(None):
        assert policy() == before


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), ranks=st.integers(1, 8), data=st.data())
def test_ranks_have_all_cores_and_few_span_nodes(sizes: list[int], ranks: int, data: st.DataObject) -> None:
    """Kernels number cores of nodes in any order."""
    ranks = min(ranks, sum(sizes))
    numbers = iter(data.draw(st.permutations(range(sum(sizes)))))
    nodes = {node: tuple(next(numbers) for _ in range(size)) for node, size in enumerate(sizes)}
    cores = cores_of_ranks(nodes, ranks)
    assert sorted(core for own in cores for core in own) == list(range(sum(sizes)))
    assert max(map(len, cores)) - min(map(len, cores)) <= 1
    found = nodes_of_ranks(nodes, ranks)
    if len(sizes) == 1:
        assert found == [None] * ranks
    else:
        assert all(node is None or set(own) <= set(nodes[node]) for node, own in zip(found, cores, strict=True))
        assert found.count(None) < len(sizes)


def test_two_ranks_have_a_node_each_though_cores_are_numbered_in_turn() -> None:
    nodes = {0: (0, 2, 4, 6), 1: (1, 3, 5, 7)}
    assert cores_of_ranks(nodes, 2) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert nodes_of_ranks(nodes, 2) == [0, 1]
    assert nodes_of_ranks(nodes, 4) == [0, 0, 1, 1]
    assert nodes_of_ranks(nodes, 3) == [0, None, 1]
