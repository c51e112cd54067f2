"""Placements as users write them: names, parts, files, and what is said of those that cannot be."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from unifiedserve.errors import ConfigError
from unifiedserve.placement import ENGINE, FIRST_MEMORY, NAMED, Stage, choose_route, letters_of, read_placement
from unifiedserve.placement.cores import divide, read_cores, write_cores
from unifiedserve.placement.instances import NODE_STAGES

SIX = range(6)


def table(text: str, available: range = SIX) -> dict[str, str]:
    """Return the cores of each worker, by its name."""
    return {each.name: write_cores(each.cores) for each in read_placement(text, available).instances}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shared", {"vision": "", "encode-prefill": "", "decode": ""}),
        ("monolithic", {"vision": "", "language": ""}),
        ("one", {"all": ""}),
        ("split", {"vision": "0-2", "encode-prefill": "0-2", "decode": "3-5"}),
        ("ep-d", {"vision-encode-prefill": "0-2", "decode": "3-5"}),
        ("ed-p", {"vision": "0-2", "encode-decode": "0-2", "prefill": "3-5"}),
        ("e-p-d", {"vision": "0-1", "encode": "0-1", "prefill": "2-3", "decode": "4-5"}),
        ("e+pd", {"vision": "", "encode": "", "prefill-decode": ""}),
        ("1e + 1p + 1d", {"vision": "", "encode": "", "prefill": "", "decode": ""}),
        ("2e+1p+1d", {"vision": "", "encode-1": "", "encode-2": "", "prefill": "", "decode": ""}),
        ("ep@0-1+2d@2-5", {"vision": "0-1", "encode-prefill": "0-1", "decode-1": "2-5", "decode-2": "2-5"}),
        ("EP+D", {"vision": "", "encode-prefill": "", "decode": ""}),
        ("ep@0-3 + d@4-5", {"vision": "0-3", "encode-prefill": "0-3", "decode": "4-5"}),
        ("v@0+ep@0,1+d@2", None),
        ("v@0+ep@1,3+d", {"vision": "0", "encode-prefill": "1,3", "decode": "2,4-5"}),
        ("e@0+2e@1+pd@2", {"vision": "0", "encode-1": "0", "encode-2": "1", "encode-3": "1", "prefill-decode": "2"}),
        ("v@5+ep@0-1+d@0,1", {"vision": "5", "encode-prefill": "0-1", "decode": "0-1"}),
    ],
)
def test_workers_and_their_cores(text: str, expected: dict[str, str] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match="both have core 0"):
            table(text)
    else:
        assert table(text) == expected


def test_fewer_cores_than_groups_are_shared_by_neighbours() -> None:
    assert table("e-p-d", range(2)) == {"vision": "0", "encode": "0", "prefill": "0", "decode": "1"}
    assert table("split", range(1)) == {"vision": "0", "encode-prefill": "0", "decode": "0"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("disaggregated", "expected shared, monolithic, split"),
        ("", "expected shared"),
        ("e+p", "no part hosts decode, and a node of a stage pool hosts v+e or p+d"),
        ("v+p+d", "no part hosts encode"),
        ("d", "no part hosts vision"),
        ("ex+p+d", "'x' in 'ex' is no stage; there are v (vision), e (encode)"),
        ("ee+p+d", "'ee' names encode twice"),
        ("0e+p+d", "0e: a part has at least one instance"),
        ("ep++d", "a part between two + is empty"),
        ("ep + d@", "'d@' names no cores, memory or GPU"),
        ("e p+d", "'e p' is no part"),
        ("ep@0-9+d", "there is no core 6 here; this process may use 0-5"),
        ("ep@3-1+d", "3-1 is no range"),
        (
            "ep@gpu0+d",
            "expected cores such as 0-3,6, a NUMA node such as node0, a memory such as mem1, or a GPU such as cuda:1",
        ),
        ("ep@memory+d", "a memory such as mem1, or a GPU such as cuda:1"),
        ("ep@mem01+d", "a memory such as mem1, or a GPU such as cuda:1"),
        ("ep@mem0,mem1+d", "@mem0,mem1 names 2 memories: a part has its pages in one"),
        ("ep@cuda:0,cuda:1+d", "@cuda:0,cuda:1 names 2 GPUs: a part computes on one"),
        ("ep@cuda+d", "or a GPU such as cuda:1"),
        ("ep@cuda:01+d", "or a GPU such as cuda:1"),
        ("ep@cuda:0+d@mem0,cuda:1", "mem0 cannot be on cuda:0 and on cuda:1: name two memories"),
        ("ep@cuda:1+d", "mem0 has no GPU, and mem1 has cuda:1: name one for each memory, or for none"),
        ("v+ep@cuda:1+d@cuda:1", "mem0 has no GPU, and mem1 has cuda:1"),
        ("ep@0-1,,mem0+d", "there is nothing between two commas"),
        ("e@mem0+p@mem1", "no part hosts decode"),
        ("ep@node99+d", "no such NUMA node"),
        ("ep@0-3+d@3-5", "@0-3 and @3-5 both have core 3"),
        ("e@0-2+p@3-5+d", "no core is left for 'd': the other parts have 0-5"),
        ("nowhere.toml", "cannot read the file: No such file"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_placement(text, SIX)
    assert str(refused.value).startswith(f"--placement {text}: ")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shared", {"vision": "mem0", "encode-prefill": "mem0", "decode": "mem0"}),
        ("e@mem0 + p@mem1 + d@mem1", {"vision": "mem0", "encode": "mem0", "prefill": "mem1", "decode": "mem1"}),
        ("ep@0-3,mem0 + d@4-5,mem1", {"vision": "mem0", "encode-prefill": "mem0", "decode": "mem1"}),
        ("2e@mem3+pd", {"vision": "mem3", "encode-1": "mem3", "encode-2": "mem3", "prefill-decode": "mem0"}),
        ("v@mem2+ep@mem1,4+d@0,1", {"vision": "mem2", "encode-prefill": "mem1", "decode": "mem0"}),
    ],
)
def test_workers_and_their_memories(text: str, expected: dict[str, str]) -> None:
    placement = read_placement(text, SIX)
    assert {each.name: each.memory for each in placement.instances} == expected
    assert placement.memories == list(dict.fromkeys(expected.values()))


PLACES = st.lists(
    st.tuples(st.sampled_from(["", "mem0", "mem7", "mem10"]), st.sampled_from(["", "0", "1,3", "0-1"])),
    min_size=3,
    max_size=3,
)


@pytest.mark.parametrize(
    ("text", "memories", "gpus"),
    [
        ("vep@cuda:0 + d@cuda:1", {"vision-encode-prefill": "mem0", "decode": "mem1"}, {"mem0": 0, "mem1": 1}),
        ("vep@cuda:0 + d", {"vision-encode-prefill": "mem0", "decode": "mem0"}, {"mem0": 0}),
        ("ep@0-1,cuda:1+d@mem1", {"vision": "mem1", "encode-prefill": "mem1", "decode": "mem1"}, {"mem1": 1}),
        ("vep@mem5,cuda:0+d@cuda:0,mem6", {"vision-encode-prefill": "mem5", "decode": "mem6"}, {"mem5": 0, "mem6": 0}),
        ("vep+d@mem1", {"vision-encode-prefill": "mem0", "decode": "mem1"}, {"mem0": 0, "mem1": 1}),
    ],
)
def test_memories_and_their_gpus(text: str, memories: dict[str, str], gpus: dict[str, int]) -> None:
    placement = read_placement(text, SIX)
    assert {each.name: each.memory for each in placement.instances} == memories
    assert {memory: placement.gpu_of(memory) for memory in placement.memories} == gpus


def test_a_file_names_gpus(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    file.write_text('[[instance]]\nstages = "vep"\ngpu = 0\n\n[[instance]]\nstages = "d"\nmemory = "mem7"\ngpu = 1\n')
    assert read_placement(str(file), SIX).gpus == {"mem0": 0, "mem7": 1}


@given(PLACES, st.booleans())
def test_memories_change_nothing_else(places: list[tuple[str, str]], memory_first: bool) -> None:
    """Whatever cores are named beside them, and in whichever order."""
    without, named = [], []
    for letter, (memory, cores) in zip("epd", places, strict=True):
        words = [memory, cores] if memory_first else [cores, memory]
        where = ",".join(word for word in words if word)
        without.append(f"{letter}@{cores}" if cores else letter)
        named.append(f"{letter}@{where}" if where else letter)
    try:
        expected = read_placement("+".join(without), SIX).instances
    except ConfigError:
        with pytest.raises(ConfigError):
            read_placement("+".join(named), SIX)
        return
    placed = read_placement("+".join(named), SIX).instances
    assert [replace(each, memory=FIRST_MEMORY) for each in placed] == list(expected)
    vision, *others = [each.memory for each in placed]
    assert others == [memory or FIRST_MEMORY for memory, _ in places]
    assert vision == others[0]


@given(st.text(alphabet="vepd0123+@-, xnode.toml", max_size=24))
@example("e")
@example("p+d")
def test_any_text_is_a_placement_or_refused(text: str) -> None:
    """It has all stages, or those of a node of a stage pool."""
    try:
        placement = read_placement(text, SIX)
    except ConfigError:
        return
    hosted = Counter(stage for each in placement.instances for stage in each.stages)
    assert set(hosted) in [set(Stage), *map(set, NODE_STAGES)]
    assert hosted[Stage.VISION] == (Stage.ENCODE in hosted)
    assert all(set(each.cores) <= set(SIX) for each in placement.instances)


def test_a_file_names_its_workers(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(
        '[[instance]]\nstages = "vep"\ncores = "0-3"\nname = "heavy"\n\n[[instance]]\nstages = "d"\nmemory = "mem1"\n'
    )
    assert table(str(file)) == {"heavy": "0-3", "decode": "4-5"}
    assert [each.memory for each in read_placement(str(file), SIX).instances] == ["mem0", "mem1"]


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ('[[instance]]\nstages = "epd"\nnice = 3', "unknown field `nice`"),
        ("[[instance]]\ncores = '0'", "missing required field `stages`"),
        ('[[instance]]\nstages = "epd"\ncount = "many"', "got `str`"),
        ('[[instance]]\nstages = ""', "a part hosts no stage"),
        ('[[instance]]\nstages = "epd"\nmemory = "node1"', "'node1' is no memory; the names are mem0, mem1 and so on"),
        ("instance = []", "no part hosts"),
        ("[[instance", "no TOML"),
        ('[[instance]]\nstages = "ep"\nname = "a"\n[[instance]]\nstages = "d"\nname = "a"', "the name 'a'"),
    ],
)
def test_a_file_with_mistakes_is_refused(tmp_path: Path, contents: str, says: str) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(contents)
    with pytest.raises(ConfigError) as refused:
        read_placement(str(file), SIX)
    assert says in str(refused.value).lower() or says in str(refused.value)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cores_are_read_as_they_are_written(cores: set[int]) -> None:
    assert set(read_cores(write_cores(sorted(cores)), sorted(cores))) == cores


@given(st.integers(1, 64), st.integers(1, 8))
def test_cores_are_divided_evenly(cores: int, parts: int) -> None:
    shares = divide(range(cores), parts)
    assert [len(share) for share in shares] == pytest.approx([max(1, cores / parts)] * parts, abs=1)
    if cores >= parts:
        assert sorted(core for share in shares for core in share) == list(range(cores))


def test_a_numa_node_is_its_cores_that_may_be_used(tmp_path: Path) -> None:
    for node, cores in enumerate(("0-2,8", "3-7")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cores}\n")
    assert read_cores("node0", SIX, tmp_path) == (0, 1, 2)
    assert read_cores("node1", SIX, tmp_path) == (3, 4, 5)
    with pytest.raises(ConfigError, match="there are node0, node1"):
        read_cores("node2", SIX, tmp_path)


def test_only_who_may_want_the_same_cores_is_beside() -> None:
    split = read_placement("split", SIX)
    _, heavy, decode = split.instances
    assert split.beside(decode.name) == []
    assert split.beside(heavy.name) == [split.instances[0]]
    shared = read_placement("shared", SIX)
    assert shared.beside("decode") == list(shared.instances[:2])


def test_who_is_on_another_gpu_is_not_beside() -> None:
    heavy, *decodes = read_placement("vep@cuda:0+d@cuda:0+d@cuda:1", SIX).instances
    placement = read_placement("vep@cuda:0+d@cuda:0+d@cuda:1", SIX)
    assert placement.beside(heavy.name) == decodes[:1]
    assert placement.beside(decodes[1].name) == []


@pytest.mark.parametrize("name", NAMED)
def test_every_name_hosts_every_stage_once(name: str) -> None:
    hosted = [stage for each in read_placement(name, SIX).instances for stage in each.stages]
    assert sorted(hosted) == sorted(Stage)


@pytest.mark.parametrize(
    ("text", "stages"),
    [("v+e", "ve"), ("e", "ve"), ("2v+3e", "ve"), ("ve", "ve"), ("p+d", "pd"), ("pd", "pd"), ("p@mem0+2d@mem1", "pd")],
)
def test_a_node_of_a_stage_pool_has_half_of_the_stages(text: str, stages: str) -> None:
    placement = read_placement(text, SIX)
    assert (letters_of(placement.stages), placement.is_whole) == (stages, False)
    assert placement.encodes_for_others == (stages == "ve")
    assert placement.encoded_elsewhere == (stages == "pd")
    route = choose_route(placement, [])
    assert [bool(route.vision), bool(route.encode), bool(route.decode)] == [stages == "ve"] * 2 + [stages == "pd"]
    assert (route.prefill == ENGINE) == (stages == "ve")
