"""Cases as hypothesis strategies: simpler ones have fewer faults, at packets nearer to the beginning."""

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from faulty_files.case import Case
from faulty_files.clips import available_clips
from faulty_files.faults import FAULTS, JOINTS

_NUMBERS = st.integers(0, 59)


def _fault(name: str) -> st.SearchStrategy[tuple[str, tuple[int, ...]]]:
    count = (FAULTS | JOINTS)[name].numbers
    return st.tuples(st.just(name), st.tuples(*[_NUMBERS] * count))


_ANY = st.sampled_from(sorted(FAULTS | JOINTS)).flatmap(_fault)


def cases(fault: str | None = None) -> st.SearchStrategy[Case]:
    """Return a strategy of any clips, with this fault and up to one more, or with up to three of any."""
    places = [(clip, container) for clip, about in available_clips().items() for container in about.containers]
    if fault is None:
        counts = st.sampled_from([0, 1, 1, 1, 1, 2, 2, 3])  # mostly one, whose causes are the easiest to see
        faults = counts.flatmap(lambda count: st.tuples(*[_ANY] * count))
    else:
        faults = st.one_of(st.tuples(_fault(fault)), st.tuples(_fault(fault), _ANY), st.tuples(_ANY, _fault(fault)))
    return st.builds(lambda place, faults: Case(place[0], place[1], faults), st.sampled_from(places), faults)


def draw(count: int, number: int) -> list[Case]:
    """Return cases drawn from a seed."""
    drawn: list[Case] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def note(case: Case) -> None:
        drawn.append(case)

    note()
    return drawn
