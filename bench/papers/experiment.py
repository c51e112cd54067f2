"""What an experiment is: requests, arrivals, servers and targets, in a TOML file each."""

from pathlib import Path

import msgspec

from unifiedserve.bench.workloads.distributions import distribution
from unifiedserve.bench.workloads.mix import Kind, Mix, load, presets
from unifiedserve.errors import ConfigError

FOLDER = Path(__file__).parent
TRACE = "trace"  # the workload whose requests have the shapes of a trace's


class Targets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SLOs as multiples of what a request of its kind takes alone on the first server."""

    ttft: float = 5.0
    tbt: float = 5.0


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of a workload that are sent to each of the servers, once at each rate.

    `papers` have such measurements in these figures. `workload` is a preset's name, a file's in the folder workloads,
    or "trace". In `arrivals` {rate} stands for the rate, {period} for its inverse and {trace} for the trace's path.
    """

    papers: tuple[str, ...]
    shows: str
    servers: tuple[str, ...]
    workload: str
    arrivals: str
    requests: int
    rates: tuple[float, ...] = (1.0,)
    slo: Targets = Targets()

    def arrivals_at(self, rate: float, trace: Path | None) -> str:
        """Return the arrivals at a rate, as `unifiedserve bench` writes them.

        Raises ConfigError if the rate is not above zero.
        """
        if not rate > 0:
            raise ConfigError(f"a rate must be above zero, not {rate:g}")
        return self.arrivals.format(rate=f"{rate:g}", period=f"{1 / rate:g}", trace=trace)


def names() -> list[str]:
    """Return the names of all experiments."""
    return sorted(path.stem for path in (FOLDER / "experiments").glob("*.toml"))


def read(name: str) -> Experiment:
    """Return an experiment. Raises ConfigError if there is none of that name."""
    if name not in names():
        raise ConfigError(f"no experiment {name!r}; there are {', '.join(names())}")
    return msgspec.toml.decode((FOLDER / "experiments" / f"{name}.toml").read_bytes(), type=Experiment)


def mix_of(experiment: Experiment, kinds: list[str]) -> Mix:
    """Return the mixture of an experiment's requests, or the part of it with these kinds.

    Raises ConfigError if it has no such kind.
    """
    name = experiment.workload
    mix = load(name if name in presets() else str(FOLDER / "workloads" / f"{name}.toml"))
    there = [kind.name for kind in mix.kind]
    if unknown := [kind for kind in kinds if kind not in there]:
        raise ConfigError(f"{name} has no kind {', '.join(unknown)}; there are {', '.join(there)}")
    return Mix(tuple(kind for kind in mix.kind if not kinds or kind.name in kinds))


def shrunk(mix: Mix) -> Mix:
    """Return the mixture with equal shares, short texts, small images and videos of two seconds."""
    return Mix(tuple(map(_small, mix.kind)))


def _small(kind: Kind) -> Kind:
    return msgspec.structs.replace(
        kind,
        share=1,
        text_tokens=distribution(16),
        output_tokens=distribution(8),
        pixels=distribution(20_000),
        seconds=distribution(2),
        size=(160, 96),
    )
