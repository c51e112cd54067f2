"""Simulate one engine: the schedulers that really run, over counted pages and measured costs."""

from unifiedserve.scheduling.simulation.arrival import Arrival, FreePages, Rules
from unifiedserve.scheduling.simulation.gpus import Gpus
from unifiedserve.scheduling.simulation.machine import Cores, Sharing
from unifiedserve.scheduling.simulation.simulate import Hardware, simulate
from unifiedserve.scheduling.simulation.simulated import Simulated
from unifiedserve.scheduling.simulation.simulator import Simulator
from unifiedserve.scheduling.stage_costs import StageCosts

__all__ = [
    "Arrival",
    "Cores",
    "FreePages",
    "Gpus",
    "Hardware",
    "Rules",
    "Sharing",
    "Simulated",
    "Simulator",
    "StageCosts",
    "simulate",
]
