"""Assemble a benchmark: workloads, data sets, arrivals, metrics and the client."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from rich.console import Console

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.arrivals.processes import ClosedLoop, Constant, Gamma, Poisson
from unifiedserve.bench.arrivals.schedule import schedule
from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.benchmark import RATE, Parts
from unifiedserve.bench.client.conversation import Judge
from unifiedserve.bench.client.judge import by_logprob, by_text
from unifiedserve.bench.datasets.choices import labels
from unifiedserve.bench.datasets.load import load as load_data_set
from unifiedserve.bench.datasets.prompts import to_requests
from unifiedserve.bench.datasets.sample import DataSet, about_whole_files
from unifiedserve.bench.datasets.scoring import is_right
from unifiedserve.bench.metrics.attainment import attainment
from unifiedserve.bench.metrics.summary import Yardstick
from unifiedserve.bench.options import GoodputOptions, RunOptions, SloOptions
from unifiedserve.bench.records import Run
from unifiedserve.bench.report.files import load_run
from unifiedserve.bench.report.provenance import describe_machine, describe_versions
from unifiedserve.bench.requests import Arrival, Request
from unifiedserve.bench.slo import Slo, isolated_slo
from unifiedserve.bench.workloads.build import Workload
from unifiedserve.bench.workloads.media.folder import DEFAULT_FOLDER, make
from unifiedserve.bench.workloads.named import named
from unifiedserve.bench.workloads.text import Estimate, Tokenizer, Writer
from unifiedserve.errors import ConfigError


def check(options: RunOptions) -> None:
    """Raise ConfigError for an impossible workload, data set or arrivals. No server has been asked then."""
    process = parse(options.arrivals.replace(RATE, "1"))
    if isinstance(options, GoodputOptions):
        _check_rate(options.arrivals)
    if options.dataset:
        _data_set(options)
    else:
        named(options.workload, process, 1, options.seed, Writer(Estimate(), options.seed), DEFAULT_FOLDER)


def parts(slo: Slo, console: Console) -> Parts:
    """Return what benchmarks are made of; the console shows what a data set lacks."""
    return Parts(
        requests=lambda options, seed, count: _requests(options, seed, count, console),
        schedule=_schedule,
        judge=_judge,
        attainment=lambda records: attainment(records, slo) or 0.0,
    )


def yardstick(options: SloOptions) -> Yardstick:
    """Return what runs are measured against. Raises ConfigError for targets that lack what they are a part of."""
    _check_targets(options)
    isolated = load_run(Path(options.isolated)).records if options.isolated else []
    if options.slo_factor is None:
        return Yardstick(slo=_absolute(options), isolated=isolated)
    if not isolated:
        raise ConfigError("--slo-factor needs --isolated RUN.json: make it with --arrivals closed:1")
    return Yardstick(slo=isolated_slo(isolated).scaled(options.slo_factor), isolated=isolated)


def stamp(run: Run) -> None:
    """Put on a run's record the machine and the versions."""
    run.machine = describe_machine()
    run.versions |= describe_versions()


def _check_rate(arrivals: str) -> None:
    """Raise ConfigError for arrivals whose rate does not become what RATE stands for."""
    processes = [parse(arrivals.replace(RATE, rate)) for rate in "12"]
    rates = [process.rate for process in processes if isinstance(process, Constant | Poisson | Gamma)]
    if RATE in arrivals and rates != [1, 2]:
        raise ConfigError(
            f"--arrivals {arrivals!r}: {RATE} is no rate there: write poisson:{RATE}, constant:{RATE} or "
            f"gamma:{RATE},cv=CV"
        )


def _check_targets(options: SloOptions) -> None:
    """Raise ConfigError for targets without effect."""
    shares = {
        "--slo-ttft-per-video-second": options.slo_ttft_per_video_second,
        "--slo-ttft-per-prompt-token": options.slo_ttft_per_prompt_token,
    }
    for option, seconds in shares.items():
        if seconds and options.slo_ttft is None:
            raise ConfigError(f"{option} adds to --slo-ttft: give that, too")
    if options.slo_factor is not None and not (options.slo_ttft is None and options.slo_tbt is None):
        raise ConfigError("--slo-factor sets all targets: leave out --slo-ttft and --slo-tbt")


def _absolute(options: SloOptions) -> Slo:
    return Slo(
        ttft=options.slo_ttft,
        ttft_per_video_second=options.slo_ttft_per_video_second,
        ttft_per_prompt_token=options.slo_ttft_per_prompt_token,
        tbt=options.slo_tbt,
    )


def _requests(options: RunOptions, seed: int, count: int, console: Console) -> Sequence[Request]:
    if options.dataset:
        return _questions(options, seed, count, console)
    folder = Path(options.media_dir).expanduser() if options.media_dir else DEFAULT_FOLDER
    drawn = _drawn(options, seed, count, folder)
    make(drawn.media, folder, console)
    return drawn.requests[:count]


def _drawn(options: RunOptions, seed: int, count: int, folder: Path) -> Workload:
    writer = Writer(Tokenizer(Path(options.tokenizer)) if options.tokenizer else Estimate(), seed)
    return named(options.workload, parse(options.arrivals.replace(RATE, "1")), count, seed, writer, folder)


def _questions(options: RunOptions, seed: int, count: int, console: Console) -> Sequence[Request]:
    from unifiedserve.bench.datasets.durations import with_durations  # reads videos

    data_set = _data_set(options)
    for note in data_set.notes():
        console.print(note, style="yellow", markup=False)
    order = stream(seed, "questions").permutation(len(data_set.samples))[:count].tolist()
    asked = with_durations(data_set.samples[index] for index in order)
    return to_requests(asked, max_tokens=options.max_tokens)


def _data_set(options: RunOptions) -> DataSet:
    if not options.data_dir:
        raise ConfigError("--dataset needs --data-dir, the folder that holds the data set")
    return _read_once(options.dataset, Path(options.data_dir), options.skip_missing)


@cache
def _read_once(name: str, data_dir: Path, skip_missing: bool) -> DataSet:
    """Read a data set once. Its requests are drawn again for each run of a search.

    Raises ConfigError if there is nothing in it that a server can be asked.
    """
    data_set = about_whole_files(load_data_set(name, data_dir, skip_missing=skip_missing))
    if not data_set.samples:
        raise ConfigError(f"{'; '.join(data_set.notes())}; nothing is left to ask")
    return data_set


def _schedule(arrivals: str, requests: Sequence[Request], seed: int) -> tuple[list[Arrival], int]:
    process = parse(arrivals)
    return schedule(process, requests, seed), process.users if isinstance(process, ClosedLoop) else 0


def _judge(options: RunOptions) -> Judge:
    return by_text(is_right) if options.accuracy == "letter" else by_logprob(labels)
