"""Placements that are tried are what `--placement` reads, over all devices and cores that there are."""

from collections import Counter

import pytest
from planned_cases import gpus, requests

from unifiedserve.bench.slo import Slo
from unifiedserve.placement import Stage, read_placement
from unifiedserve.placement.parts import Part, split_parts
from unifiedserve.planning import candidates
from unifiedserve.planning.case import Case
from unifiedserve.planning.layouts import layouts
from unifiedserve.planning.space import Space
from unifiedserve.profiles import DeviceSize


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_on_gpus(devices: int) -> None:
    found = layouts(DeviceSize(kind="cuda"), devices)
    assert len({each.placement for each in found}) == len(found)
    assert len({each.label for each in found}) == len(found)
    for layout in found:
        placement = read_placement(layout.placement, range(4))
        assert {placement.gpu_of(memory) for memory in placement.memories} == set(range(devices))
        assert sum(layout.counts) == devices
        for memory in placement.memories:  # what encodes has its media decoded on its own GPU
            assert (Stage.ENCODE in placement.hosted_in(memory)) == (Stage.VISION in placement.hosted_in(memory))


@pytest.mark.parametrize("cores", [1, 2, 6, 64])
def test_on_cores(cores: int) -> None:
    found = layouts(DeviceSize(kind="cpu", cores=cores), 1)
    assert len({each.placement for each in found}) == len(found)
    for layout in found:
        placement = read_placement(layout.placement, range(cores))
        used = Counter(core for core, own in {(core, own.cores) for own in placement.instances for core in own.cores})
        assert not used or (set(used) == set(range(cores)) and set(used.values()) == {1})  # groups are disjoint


def test_methods_of_the_papers() -> None:
    placements = {each.placement for each in layouts(DeviceSize(kind="cuda"), 2)}
    assert "v@cuda:0+ep@cuda:0+d@cuda:1" in placements  # EP+D
    assert "v@cuda:0+ed@cuda:0+p@cuda:1" in placements  # ED+P
    assert "v@cuda:0+epd@cuda:0+v@cuda:1+epd@cuda:1" in placements  # general instances


def test_a_placement_is_read_once_however_many_requests_come(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def split(text: str) -> list[Part]:
        texts.append(text)
        return split_parts(text)

    monkeypatch.setattr(candidates, "split_parts", split)
    Space(Case(gpus(), requests(40), Slo(ttft=1.0, tbt=0.2), frames=4), 7, "goodput")
    assert len(texts) == len(set(texts)) == len(layouts(gpus().device, 7))
