"""Give each rank of a worker its environment, which shows it its own GPU first."""

from collections.abc import Callable

import msgspec

from unifiedserve.placement import Instance
from unifiedserve.worker.spec import WorkerSpec


def with_environments(
    spec: WorkerSpec, environment: Callable[[Instance, str], dict[str, str]]
) -> tuple[WorkerSpec, dict[str, str]]:
    """Return the spec with what its further ranks add, and what the worker adds itself.

    `environment` tells what an instance needs whose memory is at a place.
    """
    further = [environment(spec.instance, place) for place in spec.memory.further_places] if spec.ranks > 1 else []
    spec = msgspec.structs.replace(spec, environments_of_ranks=tuple(further))
    return spec, environment(spec.instance, spec.memory.place)
