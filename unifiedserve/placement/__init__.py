"""Which processes serve a model: what stages each hosts, and on which cores. Placements are data, not code."""

from unifiedserve.placement.instances import Instance, Placement, Stage
from unifiedserve.placement.named import NAMED
from unifiedserve.placement.reading import read_placement

__all__ = ["NAMED", "Instance", "Placement", "Stage", "read_placement"]
