"""The campaign: parts run in turn against a daemon whose streams, processes and memory are watched."""

import asyncio
import contextlib
import math
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.campaign import gaps, replay, report, travel
from bench.campaign.cases import DEADLINE, Kind, Outcome, Part, Seen, Target, ViolationError
from bench.campaign.daemon import answer_about_sample, drained, restarts, served, target_at
from bench.campaign.faults import part as faults
from bench.campaign.faults.trial import NAME as FAULTS
from bench.campaign.faults.trial import Seen as FaultSeen
from bench.campaign.gaps import Gap, Streams, longest
from bench.campaign.parts import (
    attacks,
    bombs,
    checkpoints,
    connections,
    fields,
    json_bodies,
    keys,
    media_files,
    prompts,
    schema,
    signals,
    urls,
)
from bench.campaign.replay import Replayed
from bench.campaign.report import Finding, LongGap, Report
from bench.campaign.watch import Sample, Watch
from unifiedserve.config import API_KEYS

PARTS = ("schema", "requests", "media", "checkpoints", "keys", "attacks", "signals", travel.NAME, FAULTS)
ALONE = (attacks.PART, signals.PART)  # each in a daemon of its own, one case after the other
_SHARES = {"requests": 0.56, "media": 0.1, "checkpoints": 0.003, "keys": 0.02, travel.NAME: 0.1, FAULTS: 0.1}
_REQUESTS = ("requests", "media")  # one of which may cause a gap; daemons that start need the cores, too
_EXAMPLES_A_CASE = 0.004  # of schemathesis an operation; it has some thousand of its own
_QUIET_SECONDS = 10.0
_QUIETER = 5.0
_RERUN = 8  # cases, to find which one was the cause of a gap
_TIMES = 2
_LONG_CASE = 10.0  # seconds; such a case does little at any one time
_MORE_MEMORY = 1 << 30  # bytes above what an idle daemon has, afterwards
_SETTLE_SECONDS = 10.0
_RIGHT = "white"  # what the sample video's star is


class Options(msgspec.Struct, frozen=True):
    """What is to be tried, and for how long."""

    seed: int
    count: int
    minutes: float
    parts: Sequence[str]
    videos: Path | None
    case: tuple[str, int] | None = None

    def cases_of(self, part: str) -> Iterable[int]:
        """Return the numbers of a part's cases."""
        if self.case:
            return (self.case[1],) if self.case[0] == part else ()
        return range(math.ceil(self.count * _SHARES[part]))

    def cases_alone(self, part: Part) -> Iterable[int]:
        """Return the numbers of a part's cases that are tried alone: one of each kind."""
        return self.cases_of(part.name) if self.case else range(len(part.kinds))


class Campaign:
    """A campaign under way."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.began = time.monotonic()
        self.outcomes: list[Outcome] = []
        self.findings: list[Finding] = []
        self.figures: dict[str, dict[str, object]] = {}
        self.replayed: list[Replayed] = []

    @property
    def over(self) -> bool:
        """Whether its time is up."""
        return time.monotonic() > self.began + 60 * self.options.minutes

    async def run_part(self, part: Part, target: Target) -> None:
        """Run a part's cases, some at once."""
        indices = list(self.options.cases_of(part.name))
        bar = self.progress.add_task(part.name, total=len(indices))
        numbers = iter(indices)
        outcomes: list[Outcome] = []

        async def work() -> None:
            for index in numbers:
                if self.over and not part.always:
                    return
                outcomes.append(await self.run_case(part, index, target))
                self.progress.advance(bar)

        await asyncio.gather(*(work() for _ in range(part.at_once)))
        self.outcomes += outcomes
        self.findings += report.findings_of(outcomes)
        self.figures[part.name] = {**report.of_part(outcomes), "left out": len(indices) - len(outcomes)}

    async def run_case(self, part: Part, index: int, target: Target) -> Outcome:
        """Run a case; what takes too long, or fails in a way that nobody thought of, is a violation, too."""
        kind, began = part.kind_of(self.options.seed, index), time.monotonic()
        seen, violation = Seen(""), ""
        try:
            async with asyncio.timeout(DEADLINE):
                seen = await kind.act(target, part.random(self.options.seed, index))
        except ViolationError as error:
            violation = str(error)
        except TimeoutError:
            violation = f"no end within {DEADLINE:.0f} s"
        except Exception as error:
            violation = f"{type(error).__name__}: {error}"
        if violation:
            self.progress.console.print(f"{part.name}:{index} ({kind.name}): {violation[:300]}", markup=False)
        outcome = Outcome(part.name, index, kind.name, began, time.monotonic(), seen.status, seen.note, violation)
        if self.options.case:
            self.progress.console.print(f"{outcome.name} ({kind.name}): {seen}", markup=False)
        return outcome

    async def run_schema(self, target: Target) -> None:
        """Have schemathesis hold the server to its OpenAPI document."""
        bar = self.progress.add_task("schema", total=None)
        examples = max(2, round(self.options.count * _EXAMPLES_A_CASE))
        began = time.monotonic()
        found = await schema.run(str(target.http.base_url).rstrip("/"), self.options.seed, examples, 900)
        self.outcomes.append(Outcome("schema", 0, "schemathesis", began, time.monotonic(), ""))
        self.findings += [Finding("schema:0", "schemathesis", violation) for violation in found.violations]
        self.figures["schema"] = {"cases": found.cases, "statuses": {}, "kinds": {}}
        self.progress.update(bar, total=1, completed=1)

    def note(self, case: str, kind: str, what: str) -> None:
        """Note what no single case found."""
        self.findings.append(Finding(case, kind, what))
        self.progress.console.print(f"{case} ({kind}): {what}", markup=False)


@contextlib.asynccontextmanager
async def _parts(options: Options) -> AsyncIterator[dict[str, Part]]:
    requests = [*json_bodies.KINDS, *fields.KINDS, *prompts.KINDS, *connections.KINDS]
    async with urls.kind() as forbidden:
        media: list[Kind] = [*media_files.kinds(options.videos), *bombs.KINDS, forbidden]
        yield {
            "requests": Part("requests", requests, at_once=6),
            "media": Part("media", media, at_once=3),
            "checkpoints": Part("checkpoints", checkpoints.KINDS, at_once=2, always=True),
        }


def _wanted(options: Options) -> Sequence[str]:
    return (options.case[0],) if options.case else options.parts


async def run(options: Options) -> Report:
    """Run a campaign; the report has what was found."""
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress, tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(options, progress)
        log = Path(folder) / "daemon.log"
        try:
            with served(log) as daemon:
                figures = await _against(campaign, daemon.url, daemon.process.pid)
            _read_log(campaign, log)
            if "keys" in _wanted(options):
                await _with_keys(campaign, log)
            for part in ALONE:
                if part.name in _wanted(options):
                    await _alone(campaign, part, log)
            if travel.NAME in _wanted(options):
                await _travel(campaign)
            if FAULTS in _wanted(options):
                figures.faults = await _faults(campaign)
        except RuntimeError as error:
            campaign.note("daemon", "end", str(error))
            raise
        return figures


async def _against(campaign: Campaign, url: str, pid: int) -> Report:
    options = campaign.options
    async with target_at(url) as target, _parts(options) as parts:
        right = await answer_about_sample(target)
        watch = Watch(pid)
        idle = watch.look()
        watching = asyncio.create_task(watch.run())
        async with gaps.running(target.host, target.port, target.model, [pid, *watch.decoders]) as streams:
            await streams.settle(_QUIETER if options.count < 5000 else _QUIET_SECONDS)
            for name in _wanted(options):
                if name == "schema":
                    await campaign.run_schema(target)
                elif name in parts:
                    await campaign.run_part(parts[name], target)
            long = await _explain(campaign, streams, parts, target)
        watching.cancel()
        await _check_afterwards(campaign, target, watch, streams, idle, right)
    return Report(
        seed=options.seed,
        seconds=round(time.monotonic() - campaign.began, 1),
        parts=campaign.figures,
        findings=campaign.findings,
        quiet_gap_ms=round(1000 * streams.quiet, 1),
        gaps=long,
        stream_answers=streams.answers,
        memory_mib={
            "all, idle": report.mib(idle.whole),
            "all, at most": report.mib(max(sample.whole for sample in watch.samples)),
            "all, afterwards": report.mib(watch.samples[-1].whole),
            "without shared buffers, idle": report.mib(sum(idle.own.values())),
            "without shared buffers, at most": report.mib(max(sum(sample.own.values()) for sample in watch.samples)),
            "without shared buffers, afterwards": report.mib(sum(watch.samples[-1].own.values())),
        },
        slowest=report.slowest_of(campaign.outcomes),
        replayed=campaign.replayed,
    )


async def _explain(campaign: Campaign, streams: Streams, parts: dict[str, Part], target: Target) -> list[LongGap]:
    """Return the longest gaps; what is over the limit is a finding if it comes again with one of its cases alone."""
    ranked = longest(streams.gaps, 10)
    rows = {id(gap): _row(gap, campaign.outcomes) for gap in ranked}
    for outcome, gap in _suspects(streams.too_long(), campaign.outcomes)[:_RERUN]:
        if outcome.part in _REQUESTS and await _comes_again(
            campaign, streams, parts[outcome.part], outcome.index, target
        ):
            waited = f"{1000 * gap.waited:.0f} of them the server waited for a core"
            what = f"a stream stood still for {1000 * gap.gap:.0f} ms ({waited}), again when it ran alone"
            campaign.note(outcome.name, outcome.kind, what)
            if row := rows.get(id(gap)):
                row.again = True
    return list(rows.values())


def _suspects(long: Sequence[Gap], outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Gap]]:
    """Return the cases that ran in such gaps, one of a kind, with its longest: first those of the longest gaps."""
    found: dict[str, tuple[Outcome, Gap]] = {}
    for gap in sorted(long, key=lambda gap: gap.late - gap.gap):
        for outcome in gaps.meanwhile(gap, outcomes):
            if outcome.ended - outcome.began < _LONG_CASE:
                found.setdefault(outcome.kind, (outcome, gap))
    return list(found.values())


async def _comes_again(campaign: Campaign, streams: Streams, part: Part, index: int, target: Target) -> bool:
    for _ in range(_TIMES):
        began = time.monotonic()
        await campaign.run_case(part, index, target)
        await asyncio.sleep(1)
        if not streams.too_long(began):
            return False
    return True


def _row(gap: Gap, outcomes: Sequence[Outcome]) -> LongGap:
    cases = [f"{each.name} ({each.kind})" for each in gaps.meanwhile(gap, outcomes)]
    ms, late, waited = (round(1000 * seconds, 1) for seconds in (gap.gap, gap.late, gap.waited))
    return LongGap(ms, late, waited, cases[:6])


async def _check_afterwards(
    campaign: Campaign, target: Target, watch: Watch, streams: Streams, idle: Sample, right: str
) -> None:
    for error in streams.errors:
        campaign.note("streams", "end", error)
    for at, what in watch.changes:
        ran = [each.name for each in campaign.outcomes if each.began < at and each.ended > at - 5]
        campaign.note(", ".join(ran[:8]) or "daemon", "workers", what)
    if used := await drained(target):
        campaign.note("daemon", "buffers", f"pages in use afterwards: {used}")
    if count := await restarts(target):
        campaign.note("daemon", "workers", f"{count:.0f} restarts")
    await asyncio.sleep(_SETTLE_SECONDS)
    more = {name: size - idle.own.get(name, 0) for name, size in watch.look().own.items()}
    if sum(more.values()) > _MORE_MEMORY:
        kept = ", ".join(f"{name.split()[0]} {report.mib(size)} MiB" for name, size in more.items() if size > 0)
        campaign.note("daemon", "memory", f"{report.mib(sum(more.values()))} MiB more than at first: {kept}")
    if (answer := await answer_about_sample(target)) != right or _RIGHT not in right:
        campaign.note("daemon", "answer", f"a question about a sample got {answer!r}, at first {right!r}")


async def _alone(campaign: Campaign, part: Part, log: Path) -> None:
    """Try each kind of a part alone, beside streams, in a daemon of its own, and measure it."""
    indices = list(campaign.options.cases_alone(part))
    bar = campaign.progress.add_task(part.name, total=len(indices))
    outcomes: list[Outcome] = []

    with served(log, *part.options) as daemon:
        async with target_at(daemon.url) as plain:
            target = plain._replace(pid=daemon.process.pid)
            watch = Watch(target.pid)

            async def run_one(index: int) -> Outcome:
                outcomes.append(await campaign.run_case(part, index, target))
                return outcomes[-1]

            def note(row: Replayed) -> None:
                campaign.progress.advance(bar)
                _note_replayed(campaign, part, row, streams.quiet)

            async with gaps.running(target.host, target.port, target.model, [target.pid, *watch.decoders]) as streams:
                await streams.settle(_QUIETER)
                campaign.replayed += await replay.replay(run_one, indices, streams, target.pid, note)
            for error in streams.errors:
                campaign.note(part.name, "streams", error)
            if used := await drained(target):
                campaign.note(part.name, "buffers", f"pages in use afterwards: {used}")
    campaign.outcomes += outcomes
    campaign.findings += report.findings_of(outcomes)
    campaign.figures[part.name] = report.of_part(outcomes)
    _read_log(campaign, log)


def _note_replayed(campaign: Campaign, part: Part, row: Replayed, quiet: float) -> None:
    """Print what a case did, and note gaps and memory that must not be; where workers are replaced, streams pause."""
    print_ = campaign.progress.console.print
    print_(f"{row.case} ({row.kind}): {row.status}, gap {row.gap_ms:.0f} ms, {row.mib_after:.0f} MiB", markup=False)
    most = 1000 * (gaps.LIMIT + quiet) + row.late_ms
    if row.gap_ms > most and part is not signals.PART:
        campaign.note(row.case, row.kind, f"a stream stood still for {row.gap_ms:.0f} ms beside it, over {most:.0f} ms")
    if row.mib_after > row.mib_before + (replay.MORE_MEMORY >> 20):
        more = row.mib_after - row.mib_before
        campaign.note(row.case, row.kind, f"the process that answers HTTP has {more:.0f} MiB more a minute later")


async def _with_keys(campaign: Campaign, log: Path) -> None:
    """Try a daemon that has keys."""
    with served(log, environment={API_KEYS: keys.KEY}) as daemon:
        async with target_at(daemon.url, keys.KEY) as target:
            await campaign.run_part(keys.PART, target)
    _read_log(campaign, log)


async def _travel(campaign: Campaign) -> None:
    """Try engines of several memories, one after the other, each with its part of the cases."""
    indices = list(campaign.options.cases_of(travel.NAME))
    bar = campaign.progress.add_task(travel.NAME, total=len(indices))
    right, outcomes, figures = await travel.expected(), list[Outcome](), {}
    for number, placement in enumerate(travel.PLACEMENTS):
        if own := [index for index in indices if index % len(travel.PLACEMENTS) == number]:
            found = await travel.run(placement, own, campaign.options.seed, right)
            outcomes += found.outcomes
            figures[placement] = found.figures
            for kind, what in found.findings:
                campaign.note(placement, kind, what)
            campaign.progress.advance(bar, len(own))
    campaign.outcomes += outcomes
    campaign.findings += report.findings_of(outcomes)
    campaign.figures[travel.NAME] = {**report.of_part(outcomes), "placements": figures}


async def _faults(campaign: Campaign) -> list[FaultSeen]:
    """Try faults of workers, and return what came of each."""
    indices = list(campaign.options.cases_of(FAULTS))
    bar = campaign.progress.add_task(FAULTS, total=len(indices))
    found = await faults.run(indices, campaign.options.seed, lambda: campaign.progress.advance(bar))
    for kind, what in found.findings:
        campaign.note(FAULTS, kind, what)
    campaign.outcomes += found.outcomes
    campaign.findings += report.findings_of(found.outcomes)
    campaign.figures[FAULTS] = report.of_part(found.outcomes)
    return found.seen


def _read_log(campaign: Campaign, log: Path) -> None:
    """Note each traceback of a daemon's log, by its last line."""
    for last in sorted(set(_tracebacks(log.read_text(errors="replace").splitlines()))):
        campaign.note("daemon", "log", f"a traceback: {last[:300]}")


def _tracebacks(lines: Sequence[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        if line.startswith("Traceback"):
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            inside = False
            yield line
