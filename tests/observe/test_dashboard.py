"""The dashboard shows all metrics that there are, and no others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from scripted import ScriptedEngine

pytest.importorskip("aiohttp", reason="routers need unifiedserve[cluster]")

from unifiedserve.cluster.members import Member
from unifiedserve.cluster.router.bodies import Bodies
from unifiedserve.cluster.router.metrics import RouterMetrics
from unifiedserve.cluster.router.nodes import Node, Nodes
from unifiedserve.cluster.router.timeline import RouterTimeline
from unifiedserve.cluster.router.trip import Trip
from unifiedserve.messages.load import EngineLoad, LoadReport
from unifiedserve.observe.metrics import Metrics

PATH = Path(__file__).resolve().parents[2] / "packaging" / "grafana" / "unifiedserve.json"
DASHBOARD: dict[str, Any] = json.loads(PATH.read_text())
NAME = re.compile(r"unifiedserve:[a-z0-9_]+")


def samples_by_family() -> dict[str, set[str]]:
    """Return the names of the samples that a server gives, of each of its metrics."""
    metrics = Metrics(CollectorRegistry())
    metrics.bind(ScriptedEngine().observation)
    metrics.request_finished("stop", 1.0, 1, 1)
    for kind in ("queue", "run"):
        metrics.stage_time("decode", kind, 1.0)
    metrics.worked("decode", "decode", 1.0)
    metrics.pulled("decode", 1, 1.0)
    return samples_of(metrics.text()) | samples_of(router_metrics().text())


def router_metrics() -> RouterMetrics:
    """Return the metrics of a router that a node has refused a request, and broken another one off."""
    node = Node(Member(name="n", pool="p", url="http://n"))
    node.report = LoadReport(model="m", version="0", started=0, healthy=True, max_model_len=1, load=EngineLoad())
    nodes = Mock(Nodes, waiting=0, each=lambda: [node])
    metrics = RouterMetrics(lambda: nodes, Bodies())
    trip = Trip(metrics, Mock(RouterTimeline), None, "/", {})
    trip.refused("n")
    trip.broke_off("n")
    trip.answered("n", 200)
    return metrics


def samples_of(text: bytes) -> dict[str, set[str]]:
    return {
        family.name: {sample.name for sample in family.samples}
        for family in text_string_to_metric_families(text.decode())
        if not family.name.endswith("_created")  # when counting began
    }


SAMPLES = samples_by_family()


def panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> Iterator[str]:
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.mark.parametrize("expr", sorted(set(expressions())))
def test_what_is_asked_for_is_there(expr: str) -> None:
    named = set(NAME.findall(expr))
    assert named
    assert named <= set().union(*SAMPLES.values())


@pytest.mark.parametrize("family", sorted(SAMPLES))
def test_a_panel_shows_each_metric(family: str) -> None:
    named = {name for expr in expressions() for name in NAME.findall(expr)}
    assert named & SAMPLES[family], f"no panel of {PATH.name} shows {family}"


def test_braces_of_an_expression_match() -> None:
    for expr in expressions():
        assert all(expr.count(left) == expr.count(right) for left, right in ("()", "[]", "{}")), expr


def test_panels_are_distinct_and_do_not_overlap() -> None:
    everything = DASHBOARD["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not own & cells, panel["title"]
        cells |= own


def test_any_prometheus_and_any_server_can_be_chosen() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all('instance=~"$instance"' in expr for expr in expressions())
    assert set(re.findall(r"\$(?:\{)?(\w+)", " ".join(expressions()))) <= {*variables, "__rate_interval"}
