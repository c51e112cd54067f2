"""Simulate a placement, hardware, requests and options in one call."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Placement, Stage
from unifiedserve.scheduling.budgets import budget_of
from unifiedserve.scheduling.simulation.arrival import Arrival, FreePages, Rules
from unifiedserve.scheduling.simulation.gpus import Gpus
from unifiedserve.scheduling.simulation.machine import Sharing
from unifiedserve.scheduling.simulation.simulated import Simulated
from unifiedserve.scheduling.simulation.simulator import Simulator
from unifiedserve.scheduling.stage_costs import StageCosts
from unifiedserve.scheduling.state import Budget
from unifiedserve.scheduling.targets import Targets


@dataclass(frozen=True, slots=True)
class Hardware:
    """Describe a model's costs on some hardware, its sharing, and each memory's free pages."""

    costs: StageCosts
    sharing: Sharing
    free: FreePages


def simulate(
    placement: Placement,
    hardware: Hardware,
    arrivals: Iterable[Arrival],
    config: EngineConfig,
    *,
    budgets: Mapping[str, Budget] | None = None,
    rules: Rules = Rules(),  # noqa: B008
    roles: bool = False,
    deaths: Iterable[tuple[float, str]] = (),
    until: float = float("inf"),
) -> Simulated:
    """Return what becomes of requests in an engine with these options. It ends at a time (seconds).

    `budgets` are those of single instances, in place of the one that the options give. `deaths` are when (seconds)
    the workers of which instances die. Raises ConfigError for a placement on GPUs that are not there.
    """
    simulator = Simulator(
        placement,
        _budget(config, hardware),
        hardware.free,
        arrivals,
        hardware.costs,
        _for(placement, hardware.sharing),
        rules,
        Targets(config),
        _runs_dual(config, placement, hardware.sharing),
        profiles=config.scheduling.budgets == "profiled",
        roles=roles,
        budgets=budgets or {},
        deaths=deaths,
    )
    simulator.run(until)
    return Simulated.of(simulator.system)


def _budget(config: EngineConfig, hardware: Hardware) -> Budget:
    lone_step = hardware.costs.lone_step or hardware.costs.decode(1, 1)
    return budget_of(config, hardware.free.kv, lone_step, rests=hardware.sharing.rests)


def _runs_dual(config: EngineConfig, placement: Placement, sharing: Sharing) -> bool:
    """Tell whether encoders run beside the language model, as workers decide."""
    mixes = any({Stage.ENCODE, Stage.DECODE} <= set(instance.stages) for instance in placement.instances)
    how = config.scheduling.dual_streams
    return how == "on" or (how == "auto" and mixes and not (sharing.rests or config.scheduling.naive))


def _for(placement: Placement, sharing: Sharing) -> Sharing:
    if isinstance(sharing, Gpus):
        numbers = [placement.gpu_of(memory) for memory in placement.memories]
        if (most := max(numbers)) >= sharing.count:
            raise ConfigError(f"--placement {placement.name} needs cuda:{most}, of {sharing.count} GPUs in all")
    return sharing
