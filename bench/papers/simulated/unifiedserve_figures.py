"""UnifiedServe's Figures 13 to 17: Qwen2.5-VL-32B on four A100, videos and images.

One device is all four GPUs (tensor parallelism); split, two have prompts and two have answers. Baselines decode videos
on the CPU (decord), several at once and each so much slower, UnifiedServe on all 20 NVDEC engines.
"""

import random
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import NamedTuple

import msgspec
import roofline

from simulated.figure import Claim, Figure, Panel
from simulated.requests import asked, length, some
from simulated.system import PAGE, PLAIN
from simulated.targets import Target, attainment, curve, gaps, goodput, percentile, ttft
from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.profiles import HardwareProfile, read_profile
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, FreePages, Gpus, Simulator, StageCosts

CHUNK = 2048  # prompt tokens of a step, for all (§6.1)
ENCODE = 2560  # visual tokens of a step of UnifiedServe: 10,240 patches
PER_SECOND, MOST_FRAMES = 2, 768  # frames, as Qwen2.5-VL takes them
FRAMES = 30  # of a second of a video
CPU_FPS = 1000.0  # frames a second that decord decodes of one video, on all cores (assumed; Fig. 3 is drawn)
GOP_SECONDS = 10  # of a video
AT_ONCE = 8  # videos that share that (assumed: threads of the HTTP server)
PAIR = 64  # visual tokens of two frames of 224 x 224 (§6.3: 32 a frame)
PAGES = 40_000  # of the KV cache of four GPUs: 640,000 tokens in about 160 GiB
REQUESTS = 30
TEXT, OUTPUT = 40, 128  # tokens; answers are assumed, the text does not tell their lengths


@cache
def profile() -> HardwareProfile:
    """Return the paper's four GPUs."""
    return read_profile(roofline.FOLDER / "a100x4-qwen2.5-vl-32b.toml")


class Data(NamedTuple):
    """A data set: seconds of a video, or none for one image; whether UnifiedServe decodes with FlashCodec; targets."""

    name: str
    seconds: tuple[float, float] | None
    flashcodec: bool
    target: Target
    rates: tuple[float, ...]

    def make(self, decode: float, *, parallel: bool) -> "Make":
        """Return what makes requests where a second of a video takes so long to decode, GOPs in parallel or not."""
        return Make(self, decode, parallel)


class Make(NamedTuple):
    """Requests of a data set."""

    data: Data
    decode: float
    parallel: bool

    def __call__(self, choose: random.Random, ticket: Ticket) -> Arrival:
        output = length(choose, OUTPUT)
        if not self.data.seconds:
            return asked(ticket, TEXT, [PAIR // 2], output)
        seconds = choose.uniform(*self.data.seconds)
        units = min(MOST_FRAMES, round(PER_SECOND * seconds)) // 2
        made = asked(ticket, TEXT, [PAIR] * units, output)
        gop = max(1, round(units * GOP_SECONDS / seconds)) if self.parallel else units
        return made._replace(decode=self.decode * seconds / units, gop=gop)


MLVU = Data("MLVU", (480, 600), True, Target(80, 0.7), (0.03, 0.06, 0.09, 0.13, 0.2, 0.3, 0.45, 0.6))
EGOSCHEMA = Data("EgoSchema", (180, 180), False, Target(80, 0.6), (0.06, 0.12, 0.18, 0.25, 0.4, 0.6))
ARENA = Data("VisionArena", None, True, Target(0.25, 0.05), (2, 4, 8, 16, 32, 64))
DATA = (MLVU, EGOSCHEMA, ARENA)


class _SharedDecoder(Gpus):
    """GPUs beside a host that decodes several videos at once, each so much slower: as servers' threads do."""

    def decoders(self, threads: int) -> int:
        return AT_ONCE


class Server(NamedTuple):
    """A way to serve: instances, costs on what each has, its budget, how videos are decoded."""

    name: str
    instances: tuple[tuple[Stage, ...], ...]
    apart: bool
    costs: StageCosts
    budget: Budget
    flashcodec: bool = False

    def serve(self, data: Data, rate: float, count: int = REQUESTS) -> tuple[list[Arrival], dict[int, list[float]]]:
        """Return requests and when their tokens come."""
        fast = self.flashcodec and data.flashcodec
        found = profile()
        second = found.costs.video_second if fast else FRAMES / CPU_FPS
        arrivals = some(rate, count if data.seconds else 5 * count, data.make(second, parallel=fast))
        engines, cores = (found.device.video_engines, 0) if fast else (0, 1)
        interference = {} if self.apart else found.interference
        pages = PAGES // len(self.placement().memories)
        free = FreePages(pages, 1 << 20, 1 << 20, visual_page_tokens=PAGE)
        gpus = (Gpus if fast else _SharedDecoder)(2, engines, interference, cores)
        simulator = Simulator(self.placement(), self.budget, free, arrivals, self.costs, gpus)
        simulator.run()
        return arrivals, simulator.tokens

    def placement(self) -> Placement:
        """Return its instances, on one device or on one each."""
        hosts = [
            Instance(f"{number}", stages, (), f"mem{number if self.apart else 0}")
            for number, stages in enumerate(self.instances)
        ]
        return Placement(self.name, (Instance("vision", (Stage.VISION,)), *hosts))


def servers() -> list[Server]:
    """Return UnifiedServe, and vLLM in one loop and split (vLLM-s and vLLM-d)."""
    four = profile().costs
    two = _slower(four, 2.0)
    e, p, d = Stage.ENCODE, Stage.PREFILL, Stage.DECODE
    ours = replace(PLAIN, prefill_tokens=CHUNK, encode_tokens=ENCODE, scheduling="prefill-encode", overlap=True)
    one = replace(PLAIN, prefill_tokens=CHUNK)
    return [
        Server("UnifiedServe", ((e, p), (d,)), False, four, ours, flashcodec=True),
        Server("vLLM, one loop", ((e, p, d),), False, four, one),
        Server("vLLM, split", ((e, p), (d,)), True, two, one),
    ]


def _slower(costs: StageCosts, factor: float) -> StageCosts:
    """Return the costs on half of the GPUs: operations and bytes take twice as long, launches do not."""
    names = ("decode_pass", "context_token", "prompt_token", "prompt_context", "visual_token")
    return msgspec.structs.replace(costs, **{name: factor * getattr(costs, name) for name in names})


Served = tuple[list[Arrival], dict[int, list[float]]]
_kept: dict[tuple[str, str, float], Served] = {}


def served(server: Server, data: Data, rate: float) -> Served:
    """Return what becomes of requests at a rate, found once."""
    key = (server.name, data.name, rate)
    if key not in _kept:
        _kept[key] = server.serve(data, rate)
    return _kept[key]


def _ttft(found: Served) -> float:
    return fmean(ttft(each, found[1][each.ticket.uid]) for each in found[0])


def _tbt(found: Served) -> float:
    return fmean(gap for tokens in found[1].values() for gap in gaps(tokens))


def _tbt_p99(found: Served) -> float:
    return percentile([gap for tokens in found[1].values() for gap in gaps(tokens)], 0.99)


def _whole(found: Served) -> float:
    return fmean(found[1][each.ticket.uid][-1] - each.ticket.arrival for each in found[0])


_MIDDLE = 0.06  # requests a second: what is just decoded on the CPU, a quarter of what four GPUs compute


def figure_13() -> Figure:
    """Return mean latencies over the rate, by data set."""
    panels = []
    for data in DATA:
        for title, of in (("TTFT", _ttft), ("TBT", _tbt), ("end to end", _whole)):
            lines: dict[str, list[tuple[float | str, float]]] = {
                server.name: [(rate, of(served(server, data, rate))) for rate in data.rates[:4]] for server in servers()
            }
            panels.append(Panel(title=f"{data.name}: mean {title}", x="requests/s", y="s", lines=lines))
    own, one, split = (served(server, MLVU, _MIDDLE) for server in servers())
    return Figure(
        name="unifiedserve-13",
        paper="UnifiedServe Fig. 13",
        shows="Qwen2.5-VL-32B on four A100",
        panels=panels,
        claims=[
            Claim("MLVU: TTFT below the split's by, %", 100 * (1 - _ttft(own) / _ttft(split)), 80.0),
            Claim("MLVU: TBT over the split's", _tbt(own) / _tbt(split), 1.5),
            Claim("MLVU: one loop's TBT, s", _tbt(one), "above 0.3"),
            Claim("MLVU: one loop's TTFT over the split's", _ttft(one) / _ttft(split), 0.5),
            Claim("MLVU: the split's TBT, s", _tbt(split), "below 0.02"),
        ],
        note=_NOTE,
    )


_NOTE = (
    "At 0.06 requests a second, what is just decoded on the CPU. Missing: rates (drawn), answers' lengths (128 tokens "
    "assumed), the speed of decord (1,000 frames a second assumed, shared by eight videos). Videos have 24,576 visual "
    "tokens. Not reproduced: one loop's mean TBT, for which streams would nearly always have to share passes with "
    "prompts (here answers are over before the next video comes; single gaps are as long as there), and UnifiedServe's "
    "TBT above the split's: a step over four GPUs takes half as long here, and the matrix is ours of an H100."
)


def figure_14() -> Figure:
    """Return the most requests a second, by data set: all come at once."""
    panels, claims = [], []
    lines: dict[str, list[tuple[float | str, float]]] = {server.name: [] for server in servers()}
    for data in DATA:
        rates = [_throughput(served(server, data, 1e6)) for server in servers()]
        for name, rate in zip(lines, rates, strict=True):
            lines[name].append((data.name, rate / rates[0]))
        if data is MLVU:
            claims.append(Claim("MLVU: over one loop, at most", rates[0] / rates[1], 4.4))
        claims.append(Claim(f"{data.name}: the split, part of UnifiedServe's", rates[2] / rates[0], "0.14 to 0.51"))
    panels.append(Panel(title="requests/s", x="", y="part of UnifiedServe's", lines=lines, kind="bars"))
    return Figure(
        name="unifiedserve-14",
        paper="UnifiedServe Fig. 14",
        shows="throughput",
        panels=panels,
        claims=claims,
        note="UnifiedServe is bound by prefill on four GPUs, the split by prefill on two, and both baselines by the "
        "one decoder of videos.",
    )


def _throughput(found: Served) -> float:
    return len(found[0]) / max(tokens[-1] for tokens in found[1].values())


def figure_15() -> Figure:
    """Return attainment over the rate, with the targets of Table 3."""
    panels, claims = [], []
    for data in DATA:
        curves = {
            server.name: curve(
                lambda rate, server=server, data=data: attainment(*served(server, data, rate), data.target),  # type: ignore[misc]
                data.rates,
            )
            for server in servers()
        }
        lines: dict[str, list[tuple[float | str, float]]] = {name: [*points] for name, points in curves.items()}
        panels.append(Panel(title=data.name, x="requests/s", y="attainment", lines=lines, marks={"90 %": 0.9}))
        own, *others = map(goodput, curves.values())
        best = max(others)
        paper: float | str = 3.0 if data is MLVU else "above 1" if data is EGOSCHEMA else "below 1"
        claims.append(Claim(f"{data.name}: goodput over the better baseline's", own / best if best else "none", paper))
    return Figure(
        name="unifiedserve-15",
        paper="UnifiedServe Fig. 15",
        shows="targets held",
        panels=panels,
        claims=claims,
        note="Up to 3.0 times the requests is the text's headline for all data sets. With 30 requests and 80 s to the "
        "first token, a short burst is held at a rate that would not be held for long: missing are the number of "
        "requests and the rates. A request holds its TBT by the 90th percentile of its gaps here; the paper does not "
        "say how it counts.",
    )


def figure_16() -> Figure:
    """Return attainment over the scale of the targets, at one rate."""
    panels, claims = [], []
    scales = (0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
    for data, rate in ((MLVU, _MIDDLE), (EGOSCHEMA, 0.12), (ARENA, 8)):
        lines: dict[str, list[tuple[float | str, float]]] = {}
        least: list[float] = []
        for server in servers():
            found = served(server, data, rate)
            points = [(s, attainment(*found, Target(s * data.target.ttft, s * data.target.tbt))) for s in scales]
            lines[server.name] = [*points]
            least.append(next((scale for scale, held in points if held >= 0.9), scales[-1]))
        panels.append(Panel(title=f"{data.name}, {rate:g} requests/s", x="targets' scale", y="attainment", lines=lines))
        own, *others = least
        claims.append(
            Claim(f"{data.name}: how much tighter targets", min(others) / own, 1.5 if data is MLVU else "1 to 2")
        )
    return Figure(
        name="unifiedserve-16",
        paper="UnifiedServe Fig. 16",
        shows="targets held over their scale",
        panels=panels,
        claims=claims,
        note="Scales are a grid of twelve; the paper's rates for this figure are not in its text. At 0.06 requests a "
        "second one decoder on the CPU is just not overloaded.",
    )


def figure_17() -> Figure:
    """Return the 99th percentile of the time between tokens."""
    lines: dict[str, list[tuple[float | str, float]]] = {server.name: [] for server in servers()}
    for data, rate in ((MLVU, _MIDDLE), (EGOSCHEMA, 0.12), (ARENA, 8)):
        for server in servers():
            lines[server.name].append((data.name, _tbt_p99(served(server, data, rate))))
    own, one, split = ([value for _, value in points] for points in lines.values())
    return Figure(
        name="unifiedserve-17",
        paper="UnifiedServe Fig. 17",
        shows="99th percentile of the time between tokens",
        panels=[Panel(title="p99 TBT", x="", y="s", lines=lines, kind="bars")],
        claims=[
            Claim("MLVU: below one loop's by, %", 100 * (1 - own[0] / one[0]), 83.0),
            Claim("MLVU: one loop's, s", one[0], "above 0.5"),
            Claim("MLVU: the split's is the least", "yes" if split[0] <= min(own[0], one[0]) else "no", "yes"),
        ],
        note="One loop encodes a video's 24,576 visual tokens in one step, between two of every stream.",
    )


FIGURES = {
    "unifiedserve-13": figure_13,
    "unifiedserve-14": figure_14,
    "unifiedserve-15": figure_15,
    "unifiedserve-16": figure_16,
    "unifiedserve-17": figure_17,
}
