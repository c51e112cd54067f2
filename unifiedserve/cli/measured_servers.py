"""Start servers one after another to measure each for what it shows best."""

import asyncio
import datetime
import logging
import os
from collections.abc import Awaitable, Callable
from tempfile import TemporaryFile
from typing import IO, NamedTuple, TypeVar

import httpx
import msgspec

from unifiedserve.bench.client.connection import connect
from unifiedserve.cli.daemon import daemon
from unifiedserve.config import EngineConfig
from unifiedserve.errors import ConfigError
from unifiedserve.placement import MODEL_STAGES, Stage
from unifiedserve.placement.cores import write_cores
from unifiedserve.profiles import HardwareProfile
from unifiedserve.profiling.asking import Asker, RefusedError
from unifiedserve.profiling.effort import Effort
from unifiedserve.profiling.found import Found
from unifiedserve.profiling.interference import Matrix, measure_alone, measure_interference, works_of
from unifiedserve.profiling.media import Media
from unifiedserve.profiling.pulls import measure_pulls
from unifiedserve.profiling.stage_costs import SERVER_OPTIONS, Step, measure_costs
from unifiedserve.profiling.subject import Subject
from unifiedserve.profiling.texts import Texts
from unifiedserve.scheduling.simulation import StageCosts

_log = logging.getLogger(__name__)
_SHARED = "e+p+d"  # each stage has a process of its own, on all of the device
_APART = "e@mem0+p@mem1+d@mem2"  # all pages travel that can
_PERCENT = 50  # of a GPU's threads
_OURS = ("model", "placement")  # options that are not passed on as they are
_SILENCE = 600.0  # seconds
_SOURCE = "measured by unifiedserve profile"

T = TypeVar("T")


class Measurement(NamedTuple):
    """Say what is measured, with which media, and how thoroughly."""

    config: EngineConfig
    subject: Subject
    media: Media
    effort: Effort

    @property
    def gpu(self) -> bool:
        """Tell whether a GPU computes."""
        return self.subject.device.kind == "cuda"

    def asked(self, measure: Callable[[Asker], Awaitable[T]], placement: str, *options: str) -> T:
        """Start a server, measure it, and end it. Raises ConfigError if it does not start or refuses a question."""
        model = self.config.checkpoint.model
        given = {"--allowed-local-media-path": self.media.folder, "--placement": placement, **self._given()}
        flat = [part for pair in given.items() for part in pair]

        async def ask(url: str) -> T:
            async with connect(url, _SILENCE) as http:
                return await measure(Asker(http, (await Texts.of(http)).text))

        with TemporaryFile("w+") as log:
            try:
                with daemon(model, *SERVER_OPTIONS, *flat, *options, log=log) as server:
                    return asyncio.run(ask(server.url))
            except (RefusedError, httpx.HTTPError) as error:
                raise ConfigError(f"the server that is measured: {error or type(error).__name__}") from error
            except ConfigError as error:
                raise ConfigError(f"{error}: {_last_line(log)}") from error

    def _given(self) -> dict[str, str]:
        """Return the user's options for the servers."""
        given = {name: value for name, value in self.config.given.items() if name not in _OURS}
        return {f"--{name.replace('_', '-')}": str(value) for name, value in given.items()}


class _Whole(NamedTuple):
    """Measure a server that has all of the device."""

    costs: StageCosts
    spread: dict[str, float]
    interference: Matrix
    sees: bool


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    return next((line.strip() for line in reversed(log.readlines()) if line.strip()), "it said nothing")


def measured(measurement: Measurement, step: Step) -> HardwareProfile:
    """Return the profile; `step` is told what is measured next. Raises ConfigError if a server does not start."""
    step("starting a server")
    whole = measurement.asked(lambda asker: _measure_whole(asker, measurement, step), _SHARED)
    half = _half(measurement, whole, step)
    pulls = Found() if measurement.gpu else _pulls(measurement, whole.sees, step)
    subject = measurement.subject
    costs = msgspec.structs.replace(whole.costs, **pulls.costs)
    return HardwareProfile(
        model=subject.model,
        digest=subject.digest,
        hardware=subject.hardware,
        versions=subject.versions,
        date=datetime.datetime.now(datetime.UTC).date(),
        device=subject.device,
        model_sizes=subject.sizes,
        costs=costs,
        half_device=half,
        interference=whole.interference,
        spread={**whole.spread, **pulls.spread},
        sources=dict.fromkeys(("costs", "half_device", "interference"), _SOURCE),
    )


async def _measure_whole(asker: Asker, measurement: Measurement, step: Step) -> _Whole:
    media, effort = measurement.media, measurement.effort
    found = await measure_costs(asker, media, effort, step)
    costs = found.stage_costs(encoder_layers=measurement.subject.encoder_layers)
    if measurement.gpu:  # where there are no cores to leave to others
        costs = msgspec.structs.replace(costs, half=1.0, waste=0.0)
    sees = "visual_token" in found.costs
    matrix = await measure_interference(asker, works_of(media, sees=sees), costs, effort, step)
    return _Whole(costs, dict(found.spread), matrix, sees)


def _half(measurement: Measurement, whole: _Whole, step: Step) -> dict[Stage, float]:
    """Return how many times longer each stage takes on half of the device; nothing where that cannot be had."""
    step("starting a server on half of the device")
    works = works_of(measurement.media, sees=whole.sees)
    del works[Stage.VISION]  # whose threads have a core each, however many there are

    async def measure(asker: Asker) -> dict[Stage, float]:
        return await measure_alone(asker, works, whole.costs, measurement.effort, step)

    cores = sorted(os.sched_getaffinity(0))
    if measurement.gpu:
        names = [stage.value for stage in MODEL_STAGES]
        limits = [part for name in names for part in ("--gpu-threads", f"{name}={_PERCENT}")]
        try:
            return measurement.asked(measure, _SHARED, "--share", "mps", *limits)
        except ConfigError as error:
            _log.warning("half of the GPU is not measured: %s", error)
            return {}
    if len(cores) < 2:
        return {}
    own = write_cores(cores[: len(cores) // 2])
    return measurement.asked(measure, "+".join(f"{letter}@{own}" for letter in "epd"))


def _pulls(measurement: Measurement, sees: bool, step: Step) -> Found:
    """Return what pages cost that travel."""
    step("starting a server whose pages travel")
    works = list(works_of(measurement.media, sees=sees).values())
    sizes, effort = measurement.subject.page_bytes, measurement.effort

    async def measure(asker: Asker) -> Found:
        step("pages that travel")
        return await measure_pulls(asker, works, sizes, effort)

    return measurement.asked(measure, _APART)
