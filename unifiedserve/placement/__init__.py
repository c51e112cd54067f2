"""Place a model on processes: their stages and their cores. Placements are data, not code."""

from unifiedserve.placement.changes import ChangingPlacement, RoleChange
from unifiedserve.placement.instances import (
    ENGINE,
    FIRST_MEMORY,
    MODEL_STAGES,
    Instance,
    Network,
    Placement,
    Stage,
    networks_of,
)
from unifiedserve.placement.named import NAMED
from unifiedserve.placement.parts import letters_of, stages_of
from unifiedserve.placement.reading import read_placement
from unifiedserve.placement.routes import Load, Route, choose_route

__all__ = [
    "ENGINE",
    "FIRST_MEMORY",
    "MODEL_STAGES",
    "NAMED",
    "ChangingPlacement",
    "Instance",
    "Load",
    "Network",
    "Placement",
    "RoleChange",
    "Route",
    "Stage",
    "choose_route",
    "letters_of",
    "networks_of",
    "read_placement",
    "stages_of",
]
