"""The manifest for KubeRay: its cluster file is one, and its figures fit together."""

from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
from project_files import PACKAGING, TO_STOP

from unifiedserve.cluster.cluster_file import Cluster
from unifiedserve.config import API_KEY, API_KEYS
from unifiedserve.server.app import OF_AN_ENGINE

CONFIG, RAY, SERVICE = yaml.safe_load_all((PACKAGING / "kubernetes" / "cluster.yaml").read_text())
HEAD = RAY["spec"]["headGroupSpec"]
GROUPS: dict[str, dict[str, Any]] = {group["groupName"]: group for group in RAY["spec"]["workerGroupSpecs"]}
CLUSTER = msgspec.toml.decode(CONFIG["data"]["cluster.toml"], type=Cluster)
(POOL,) = CLUSTER.pool


def container(group: dict[str, Any]) -> dict[str, Any]:
    (only,) = group["template"]["spec"]["containers"]
    return dict(only)


def gib(quantity: str) -> int:
    assert quantity.endswith("Gi")
    return int(quantity[:-2])


def test_the_cluster_file_is_one() -> None:
    CLUSTER.check()


def test_each_node_and_each_router_has_a_pod() -> None:
    assert GROUPS["nodes"]["replicas"] == POOL.most
    assert GROUPS["routers"]["replicas"] == len(CLUSTER.router.ports)
    (custom,) = CLUSTER.router.resources.custom
    assert f'\\"{custom}\\": 1' in GROUPS["routers"]["rayStartParams"]["resources"]


def test_a_node_fits_into_its_pod_beside_ray() -> None:
    limits = container(GROUPS["nodes"])["resources"]["limits"]
    assert POOL.resources.cpus == int(limits["cpu"])
    assert POOL.resources.memory_gib < gib(limits["memory"])


def test_a_drain_has_time() -> None:
    grace = GROUPS["nodes"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= POOL.serve["drain-timeout"] + TO_STOP


def test_the_service_leads_to_the_routers() -> None:
    assert SERVICE["spec"]["selector"] == {"ray.io/cluster": RAY["metadata"]["name"], "ray.io/group": "routers"}
    (port,) = container(GROUPS["routers"])["ports"]
    assert port["containerPort"] in CLUSTER.router.ports
    assert SERVICE["spec"]["ports"][0]["targetPort"] == port["name"]


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/health"), ("readinessProbe", "/ready"), ("livenessProbe", "/health")]
)
def test_probes_of_routers_ask_for_what_is_served(probe: str, path: str) -> None:
    assert container(GROUPS["routers"])[probe]["httpGet"] == {"path": path, "port": "http"}
    assert path in {endpoint.path for endpoint in OF_AN_ENGINE}


@pytest.mark.parametrize("group", [HEAD, *GROUPS.values()], ids=["head", *GROUPS])
def test_pods_know_the_token_and_need_no_privileges(group: dict[str, Any]) -> None:
    known = {each["name"] for each in container(group)["env"]}
    assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_worker_niceness", API_KEY, API_KEYS} <= known
    assert group["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert container(group)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    ports = {port["name"] for port in container(group)["ports"]}
    for probe in ("readinessProbe", "livenessProbe"):
        ((_, asked),) = [(k, v) for k, v in container(group)[probe].items() if k in ("httpGet", "tcpSocket")]
        assert asked["port"] in ports


def test_files_that_are_named_are_mounted() -> None:
    (file,) = CONFIG["data"]
    command = container(HEAD)["lifecycle"]["postStart"]["exec"]["command"][-1]
    mounted = {mount["mountPath"] for mount in container(HEAD)["volumeMounts"]}
    assert any(f"{path}/{file}" in command for path in mounted)
    keys = POOL.serve["api-key-file"].rpartition("/")[0]
    assert keys in {mount["mountPath"] for mount in container(GROUPS["nodes"])["volumeMounts"]}
