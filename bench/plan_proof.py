"""What `unifiedserve plan` predicts beside what is measured: the best placement, its runners-up and the defaults.

Three workloads (mixed, bursts of images, long videos) are planned, each from a profile that is measured just before,
because machines that others share change their speed. Then a server with each of the placements gets the very requests
that were simulated, at the rate that was predicted for it, and at rates above or below until some hold and some do not.
Everything is saved as soon as it is there: the same command goes on where it was stopped. Caches and drafts are off, as
they are not simulated.

    python bench/plan_proof.py CHECKPOINT --part 0.5
    python bench/plan_proof.py CHECKPOINT --part 0.5 --targets 4       # two cores without bfloat16 products
    python bench/plan_proof.py --replay RESULTS --out AGAIN      # what was measured, by today's simulator
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import httpx
import msgspec
import typer
from rich.console import Console
from rich.table import Table
from serve_cpu import checkpoint

from unifiedserve.bench.arrivals.processes import Gamma
from unifiedserve.bench.client.body import Wishes
from unifiedserve.bench.client.target import find_target
from unifiedserve.bench.metrics.attainment import goodput
from unifiedserve.bench.records import Record
from unifiedserve.bench.requests import Arrival
from unifiedserve.bench.run.measure import measure
from unifiedserve.bench.run.plan import Manner, Plan
from unifiedserve.bench.run.progress import Bar, shown
from unifiedserve.bench.slo import Slo
from unifiedserve.bench.workloads.media.folder import make
from unifiedserve.bench.workloads.named import named
from unifiedserve.bench.workloads.text import Tokenizer, Writer
from unifiedserve.cli.daemon import daemon
from unifiedserve.cli.measured_servers import Measurement, measured
from unifiedserve.config import EngineConfig
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.choices import choice_of
from unifiedserve.planning.files import flags
from unifiedserve.planning.goodput import Wanted, score
from unifiedserve.planning.objective import GOAL, Latencies, latencies
from unifiedserve.planning.plan import Choice
from unifiedserve.planning.planner import make_plan
from unifiedserve.planning.ranking import SHOWN, Rated
from unifiedserve.planning.search import Effort
from unifiedserve.planning.workload import read_workload
from unifiedserve.profiles import HardwareProfile, read_profile
from unifiedserve.profiling.effort import FULL
from unifiedserve.profiling.media import Media
from unifiedserve.profiling.subject import Subject

FOLDER = Path(__file__).parent / "plan_workloads"
CACHE = checkpoint.DEFAULT_FOLDER.parent / "plan-proof"
FRAMES = 16
AS_SIMULATED = ("--no-prefix-cache", "--visual-cache-mib", "0", "--speculative-tokens", "0")
EFFORT = FULL._replace(pair_seconds=0.5)  # cores share themselves out as the simulator knows
STEP = 1.2  # between two rates that are tried


class Asked(NamedTuple):
    """A workload: how uneven its gaps are, its targets, and how many requests come."""

    cv: float
    slo: Slo
    requests: int


WORKLOADS = {
    "mixed": Asked(1.0, Slo(ttft=3.0, ttft_per_video_second=0.15, tbt=0.2), 96),
    "image-bursts": Asked(1.5, Slo(ttft=8.0, tbt=0.6), 96),
    "long-videos": Asked(1.0, Slo(ttft=4.0, ttft_per_video_second=0.1, tbt=0.2), 48),
}
DEFAULTS = {
    "defaults": Candidate(method="", label="defaults", placement="v+ep+d"),
    "monolithic, defaults": Candidate(method="", label="monolithic, defaults", placement="v+epd"),
}


class Run(msgspec.Struct):
    """A server at a rate: what was predicted, and what was measured."""

    rate: float
    predicted: Latencies
    measured: Latencies


class Server(msgspec.Struct):
    """A placement and its options with the goodput that was predicted, and its runs."""

    role: str
    choice: Choice
    runs: list[Run] = []
    done: bool = False

    @property
    def measured(self) -> float | None:
        """The goodput that was measured, between the rates that were tried."""
        found = goodput([(run.rate, run.measured.attainment) for run in self.runs], GOAL)
        return found.rate if found else None


class Results(msgspec.Struct):
    """All that is saved."""

    command: str
    machine: dict[str, str]
    part: float  # of the requests
    targets: float = 1.0  # how many times as long they are, because the machine is slower
    profiles: dict[str, HardwareProfile] = {}
    servers: dict[str, list[Server]] = {}


class Proof:
    """What there is so far, and how to go on."""

    def __init__(
        self,
        model: Path,
        results: Results,
        profile: HardwareProfile | None,
        rates: int,
        save: Callable[[], None],
        console: Console,
    ) -> None:
        self._model, self._results, self._profile, self._rates = model, results, profile, rates
        self._save, self._console = save, console

    def run(self, name: str, seconds: float) -> None:
        """Plan a workload, and measure what was planned, as far as that is not done."""
        if name not in self._results.profiles:
            self._results.profiles[name] = self._profile or profile_of(self._model, self._console)
            self._save()
        case = self._case(name)
        servers = self._results.servers.setdefault(name, [])
        if not servers:
            self._console.print(f"{name}: planning")
            servers += planned(case, seconds)
            self._save()
        for number, server in enumerate(servers, 1):
            while not server.done:
                rate = next_rate(server) or server.choice.value
                self._console.print(f"{name}: {number}/{len(servers)} {server.role} at {rate:.3g}/s", highlight=False)
                server.runs.append(self._measured(name, case, server.choice, rate))
                server.done = next_rate(server) is None or len(server.runs) >= self._rates
                self._save()

    def _count(self, name: str) -> int:
        return round(WORKLOADS[name].requests * self._results.part)

    def _case(self, name: str) -> Case:
        asked = WORKLOADS[name]
        workload = read_workload(str(FOLDER / f"{name}.toml"), self._count(name), 0, asked.cv)
        return Case(self._results.profiles[name], workload, asked.slo.scaled(self._results.targets), FRAMES)

    def _measured(self, name: str, case: Case, choice: Choice, rate: float) -> Run:
        options = " ".join(flags(choice.options)).split()
        media = ("--allowed-local-media-path", str(CACHE))
        with daemon(str(self._model), "--placement", choice.placement, *options, *AS_SIMULATED, *media) as server:
            records = asyncio.run(self._ask(server.url, name, case, rate))
        return Run(rate, predicted(case, choice, rate), latencies(records, case.tokens, case.slo))

    def replay(self, name: str) -> None:
        """Predict once more what was planned and measured."""
        case = self._case(name)
        for server in self._results.servers[name]:
            self._console.print(f"{name}: {server.role}")
            reached = score(case, candidate_of(server.choice), Wanted("goodput", precision=0.02))
            server.choice = msgspec.structs.replace(server.choice, value=reached.value, too_high=reached.too_high)
            for run in server.runs:
                run.predicted = predicted(case, server.choice, run.rate)
            self._save()

    async def _ask(self, url: str, name: str, case: Case, rate: float) -> list[Record]:
        count, asked = self._count(name), WORKLOADS[name]
        writer = Writer(Tokenizer(self._model / "tokenizer.json"), 0)
        drawn = named(str(FOLDER / f"{name}.toml"), Gamma(1.0, asked.cv), count + 2, 0, writer, CACHE)
        make(drawn.media, CACHE, self._console)
        due = [Arrival(at / rate, request) for at, request in zip(case.workload.times, drawn.requests, strict=False)]
        plan = Plan(
            name=name, workload=name, arrivals=f"{rate:g}/s", seed=0, requests=due, warmup=drawn.requests[count:]
        )
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=f"{url}/", timeout=httpx.Timeout(None), limits=limits) as http:
            wishes = Wishes(video={"frames": FRAMES})
            manner = Manner(url=url, target=await find_target(http), wishes=wishes, delivery="file")
            with shown(self._console) as progress:
                run = await measure(http, plan, manner, bar=Bar(progress, plan.arrivals, plan.turns))
        if run.interrupted:
            raise KeyboardInterrupt
        by_id = {record.request: record for record in run.records}
        return [by_id[each.request.id] for each in due]


def predicted(case: Case, choice: Choice, rate: float) -> Latencies:
    """Return what clients would see at a rate."""
    simulated = case.simulate(candidate_of(choice), rate)
    assert simulated is not None
    return case.latencies(simulated)


def planned(case: Case, seconds: float) -> list[Server]:
    """Return the best placement, its runners-up and the defaults, with what was predicted."""
    found = make_plan(case, 1, "goodput", Effort(trials=1000, seconds=seconds), processes=2)
    roles = ["best", *(f"runner-up {number}" for number in range(1, SHOWN))][: len(found.choices)]
    servers = [Server(role, choice) for role, choice in zip(roles, found.choices, strict=True)]
    for role, candidate in DEFAULTS.items():
        reached = score(case, candidate, Wanted("goodput", precision=0.02))
        if reached.seen:
            servers.append(Server(role, choice_of(case, Rated(candidate, reached))))
    return servers


def next_rate(server: Server) -> float | None:
    """Return the rate to try: the predicted one, then steps to where targets begin to be missed; None at the end."""
    rates = {run.rate: run.measured.attainment >= GOAL for run in server.runs}
    if not rates:
        return server.choice.value or 0.01
    if all(rates.values()):
        return STEP * max(rates)
    return None if any(rates.values()) else min(rates) / STEP


def candidate_of(choice: Choice) -> Candidate:
    """Return the candidate that a choice was."""
    known = {name: value for name, value in choice.options.items() if name in Candidate.__struct_fields__}
    targets = bool({"slo_ttft", "slo_tbt"} & set(choice.options))
    return Candidate(method="", label=choice.label, placement=choice.placement, devices=1, targets=targets, **known)


def replayed(path: Path, profile: HardwareProfile | None) -> Results:
    """Return saved results to be predicted once more, by another profile if there is one."""
    results = msgspec.json.decode(path.read_bytes(), type=Results)
    results.command = " ".join(["python", *sys.argv])
    if profile:
        results.profiles = dict.fromkeys(results.profiles, profile)
    return results


def show(results: Results, console: Console) -> None:
    """Print predicted beside measured, and how far the choice is from the best that was measured.

    Beside the goodput stand the times of the targets with which nine tenths of the requests would just hold them.
    """
    for name, servers in results.servers.items():
        table = Table(title=name)
        for heading in ("", "placement", "goodput, 1/s", "targets, times", "TTFT p90, s", "TBT p99, ms"):
            table.add_column(heading)
        for server in servers:
            runs = server.runs[:1]
            table.add_row(
                server.role,
                server.choice.placement,
                beside(server.choice.value, server.measured),
                *(beside(run.predicted.scale, run.measured.scale) for run in runs),
                *(beside(run.predicted.ttft_p90, run.measured.ttft_p90) for run in runs),
                *(beside(run.predicted.tbt_p99, run.measured.tbt_p99, 1000) for run in runs),
            )
        console.print(table)
        reached = [(server.measured, server.role) for server in servers if server.measured]
        if reached and servers[0].measured:
            best, role = max(reached)
            console.print(f"{name}: the choice reaches {servers[0].measured / best:.0%} of the best measured ({role})")


def beside(predicted: float | None, real: float | None, factor: float = 1) -> str:
    """Return predicted beside measured, and the error."""
    if predicted is None or real is None or not real:
        return ""
    return f"{factor * predicted:.3g} : {factor * real:.3g} ({predicted / real - 1:+.0%})"


def draw(path: Path, results: Results) -> None:
    """Draw the goodput of each placement, predicted and measured."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(results.servers), 3.4), layout="constrained")
    for axis, (name, servers) in zip(
        figure.subplots(1, len(results.servers), squeeze=False)[0], results.servers.items(), strict=True
    ):
        places = range(len(servers))
        axis.bar([place - 0.2 for place in places], [each.choice.value for each in servers], 0.4, label="predicted")
        axis.bar([place + 0.2 for place in places], [each.measured or 0.0 for each in servers], 0.4, label="measured")
        labels = [f"{each.choice.placement}\n{each.role}" for each in servers]
        axis.set_xticks(list(places), labels, rotation=60, ha="right", fontsize=6)
        axis.set_title(f"{name}: goodput, 1/s", loc="left", fontsize=9)
    figure.axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def profile_of(model: Path, console: Console) -> HardwareProfile:
    """Measure the model with media like the workloads'."""
    drawn = named(
        str(FOLDER / "mixed.toml"), Gamma(1.0, 1.0), 40, 0, Writer(Tokenizer(model / "tokenizer.json"), 0), CACHE
    )
    make(drawn.media, CACHE, console)
    image, video = (
        next(CACHE / each.name for each in drawn.media if each.name.endswith(end)) for end in ("jpg", "mp4")
    )
    config = EngineConfig.of(model=str(model))
    what = Measurement(config, Subject.of(config), Media.of(image, video), EFFORT)
    return measured(what, lambda step: console.print(f"profile: {step}", style="dim"))


def main(
    model: Annotated[Path, typer.Argument(help="Checkpoint")] = checkpoint.DEFAULT_FOLDER,
    only: Annotated[list[str] | None, typer.Option("--workload", help="One of the workloads; may be repeated")] = None,
    profile: Annotated[Path | None, typer.Option(help="A profile that was measured before")] = None,
    seconds: Annotated[float, typer.Option(help="Of each search")] = 60.0,
    part: Annotated[float, typer.Option(help="Of the requests")] = 1.0,
    targets: Annotated[float, typer.Option(help="Times as long: for a slower machine")] = 1.0,
    rates: Annotated[int, typer.Option(min=1, help="Tried with a server at most")] = 3,
    again: Annotated[bool, typer.Option("--again", help="Begin anew, whatever was saved")] = False,
    replay: Annotated[
        Path | None, typer.Option(exists=True, help="Results to predict once more; nothing is measured")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where everything is saved")] = Path("bench/results/plan-proof.json"),
) -> None:
    """Compare predictions with measurements."""
    console = Console()
    if not (replay or (model / "config.json").exists()):
        checkpoint.make(model)
    if replay:
        results = replayed(replay, read_profile(profile) if profile else None)
    elif out.exists() and not again:
        results = msgspec.json.decode(out.read_bytes(), type=Results)
    else:
        results = Results(" ".join(["python", *sys.argv]), describe_machine(), part, targets)

    def save() -> None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")

    save()
    proof = Proof(model, results, read_profile(profile) if profile else None, rates, save, console)
    try:
        for name in only or list(results.servers if replay else WORKLOADS):
            proof.replay(name) if replay else proof.run(name, seconds)
    except KeyboardInterrupt:
        console.print("stopped: the same command goes on")
    show(results, console)
    if results.servers:
        draw(out.with_suffix(".png"), results)


if __name__ == "__main__":
    typer.run(main)
