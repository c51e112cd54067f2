"""The manifest for Kubernetes: what it says of the server is so, and its figures fit together."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
from project_files import IMAGES, PACKAGING, TO_STOP, options_of

from unifiedserve.config import DEFAULT_KV_CACHE_MIB, MIB, EngineConfig
from unifiedserve.server.app import OF_AN_ENGINE

DEPLOYMENT, SERVICE = yaml.safe_load_all((PACKAGING / "kubernetes" / "unifiedserve.yaml").read_text())
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
(PORT,) = CONTAINER["ports"]
LIMITS: dict[str, str] = CONTAINER["resources"]["limits"]
MOUNTED = {
    mount["mountPath"]: next(volume for volume in POD["volumes"] if volume["name"] == mount["name"])
    for mount in CONTAINER["volumeMounts"]
}
SERVE = options_of(CONTAINER["args"])
UNITS = {"Mi": MIB, "Gi": 1024 * MIB}


def bytes_of(quantity: str) -> int:
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/health"), ("readinessProbe", "/ready"), ("livenessProbe", "/health")]
)
def test_probes_ask_for_what_is_served(probe: str, path: str) -> None:
    asked = CONTAINER[probe]["httpGet"]
    assert asked == {"path": path, "port": PORT["name"]}
    assert path in {endpoint.path for endpoint in OF_AN_ENGINE}


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe"])
def test_workers_that_start_are_waited_for(probe: str) -> None:
    assert (
        CONTAINER[probe]["periodSeconds"] * CONTAINER[probe]["failureThreshold"]
        >= EngineConfig().machine.startup_timeout
    )


def test_ports_agree() -> None:
    assert str(PORT["containerPort"]) == SERVE["--port"]
    assert SERVICE["spec"]["ports"][0]["targetPort"] == PORT["name"]


def test_the_service_finds_the_pods() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels


def test_a_drain_has_time() -> None:
    pause = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] >= pause + float(SERVE["--drain-timeout"]) + TO_STOP


def test_shared_memory_has_room() -> None:
    shared = MOUNTED["/dev/shm"]["emptyDir"]
    config = EngineConfig()
    buffers = (
        DEFAULT_KV_CACHE_MIB
        + config.memory.patch_buffer_mib
        + config.memory.visual_buffer_mib
        + config.memory.visual_cache_mib
    )
    assert shared["medium"] == "Memory"
    assert 1.5 * buffers * MIB < bytes_of(shared["sizeLimit"]) < bytes_of(LIMITS["memory"]) / 2


def test_what_is_left_there_is_recognised() -> None:
    assert POD["shareProcessNamespace"]


def test_threads_are_those_of_the_limit() -> None:
    assert LIMITS["cpu"] == SERVE["--torch-threads"] == SERVE["--vision-threads"]


def test_keys_come_from_a_secret_that_may_be_replaced() -> None:
    folder = str(Path(SERVE["--api-key-file"]).parent)
    assert "secretName" in MOUNTED[folder]["secret"]
    assert not any("subPath" in mount for mount in CONTAINER["volumeMounts"])


def test_nothing_is_allowed_that_is_not_needed() -> None:
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not POD["automountServiceAccountToken"]
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_the_images_suit_it(image: Path) -> None:
    text = image.read_text()
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == [str(POD["securityContext"]["runAsUser"])]
    assert re.findall(r"^EXPOSE (.+)$", text, re.MULTILINE) == [SERVE["--port"]]
    assert set(re.findall(r"^VOLUME (.+)$", text, re.MULTILINE)) <= set(MOUNTED)
