"""Describe a plan's workload: requests by their sizes, and the pattern in which they come at any rate."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from unifiedserve.bench.arrivals.parse import parse
from unifiedserve.bench.arrivals.processes import Gamma
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.bench.requests import Request, Text
from unifiedserve.bench.workloads.build import Workload as Drawn
from unifiedserve.bench.workloads.media.recipes import Image, Video
from unifiedserve.bench.workloads.named import named, names
from unifiedserve.bench.workloads.text import Estimate, Writer
from unifiedserve.errors import ConfigError

_NOT_PLANNED = {"trace", "sessions"}  # the requests of a trace's file, and those that depend on answers
_FOLDER = Path()  # of media, which nobody makes
_MEDIA_COLUMNS = "NumImages as in Azure's LMM trace, image_count and image_tokens as in ServeGen's"


class RequestSize(msgspec.Struct, frozen=True):
    """Describe a request in numbers: tokens of text and of its answer, pixels of its images, seconds of its videos."""

    kind: str
    text_tokens: int
    output_tokens: int
    pixels: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()


class Workload(msgspec.Struct, frozen=True):
    """Hold requests and when they come (seconds, the first at 0) at one a second on average.

    In a trace the `pixels` of images are those that become its visual tokens (`exact`).
    """

    name: str
    requests: tuple[RequestSize, ...]
    times: tuple[float, ...]
    exact: bool = False

    @property
    def has_media(self) -> bool:
        """Tell whether any request has an image or a video."""
        return any(each.pixels or each.seconds for each in self.requests)


def read_workload(trace: str, count: int, seed: int, cv: float = 1.0, *, texts_only: bool = False) -> Workload:
    """Return `count` requests of a trace file (FILE?from=60&first=100), or of a workload of `unifiedserve bench`.

    Gaps of the latter are gamma-distributed, with a deviation of `cv` times their mean. Raises ConfigError if there is
    none of that name, or it lacks what a plan needs; `texts_only` needs no media.
    """
    process = _process(trace, count, cv)
    is_trace = isinstance(process, Trace)
    drawn = named("trace" if is_trace else trace, process, count, seed, Writer(Estimate(), seed), _FOLDER)
    times = process.times(len(drawn.requests), seed).tolist()
    found = Workload(trace, tuple(_sizes(trace, drawn)), _even(trace, times), exact=is_trace)
    if not (found.has_media or texts_only):
        raise ConfigError(
            f"{trace} tells of no images and no videos: a trace has them in columns ({_MEDIA_COLUMNS}); "
            "to plan for its texts alone give --texts-only"
        )
    return found


def _process(trace: str, count: int, cv: float) -> Gamma | Trace:
    path = trace.partition("?")[0]
    if (trace in names() and trace != "trace") or path.endswith(".toml"):
        return Gamma(1.0, cv)
    if not Path(path).expanduser().exists():
        planned = ", ".join(name for name in names() if name not in _NOT_PLANNED)
        raise ConfigError(f"--trace {trace}: there is no such file, and no such workload; those are {planned}")
    process = parse(f"trace:{trace}")
    assert isinstance(process, Trace)
    return msgspec.structs.replace(process, first=min(count, process.first or count))


def _sizes(trace: str, drawn: Drawn) -> Iterator[RequestSize]:
    media = iter(drawn.media)
    for request in drawn.requests:
        if len(request.turns) > 1:
            raise ConfigError(
                f"{trace} has conversations of several turns, which depend on answers: plan for single ones"
            )
        yield _size(request, [next(media) for part in request.turns[0].parts if not isinstance(part, Text)])


def _size(request: Request, media: list[Image | Video]) -> RequestSize:
    (turn,) = request.turns
    return RequestSize(
        request.kind,
        max(1, sum(Estimate().count(part.text) for part in turn.parts if isinstance(part, Text))),
        turn.max_tokens,
        tuple(each.width * each.height for each in media if isinstance(each, Image)),
        tuple(each.seconds for each in media if isinstance(each, Video)),
    )


def _even(trace: str, times: list[float]) -> tuple[float, ...]:
    """Return the times at a mean rate of one a second."""
    if len(times) < 2 or times[-1] <= times[0]:
        raise ConfigError(
            f"{trace}: {len(times)} requests at one time have no rate: there must be two at least, at two times"
        )
    gap = (times[-1] - times[0]) / (len(times) - 1)
    return tuple((time - times[0]) / gap for time in times)
