"""Parse the command line's arrivals into a process."""

from pathlib import Path

from unifiedserve.bench.arrivals.processes import ClosedLoop, Constant, Gamma, Poisson
from unifiedserve.bench.arrivals.spec import Spec, pairs, split
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.errors import ConfigError

FORMS = "closed:USERS, constant:RATE, poisson:RATE, gamma:RATE,cv=CV or trace:FILE?scale=2&from=60&to=120&first=100"
_TRACE_OPTIONS = ("scale", "from", "to", "first", "spread")
_CV_LIMITS = 0.001, 1000.0

Process = ClosedLoop | Constant | Poisson | Gamma | Trace


def parse(text: str) -> Process:
    """Return the process that a text such as gamma:2.5,cv=4 describes: rates a second, times in seconds.

    Raises ConfigError if it has none of the FORMS or a number in it makes no sense.
    """
    if text.startswith("trace:"):
        return _trace(text)
    spec = split(text)
    match spec.name:
        case "closed":
            spec.allow([])
            return ClosedLoop(spec.whole())
        case "constant":
            spec.allow([])
            return Constant(spec.number())
        case "poisson":
            spec.allow([])
            return Poisson(spec.number())
        case "gamma":
            spec.allow(["cv"])
            return Gamma(spec.number(), _unevenness(spec))
    raise ConfigError(f"--arrivals {text!r} is not understood: write {FORMS}")


def _unevenness(spec: Spec) -> float:
    """Return the deviation of gaps over their mean. Raises ConfigError for one that no numbers can follow."""
    cv = spec.number("cv")
    least, most = _CV_LIMITS
    if not least <= cv <= most:
        raise ConfigError(f"{spec.text}: cv must be from {least:g} to {most:g}")
    return cv


def _trace(text: str) -> Trace:
    path, _, query = text.removeprefix("trace:").partition("?")
    spec = Spec(text, "trace", path, pairs(text, filter(None, query.split("&"))))
    spec.allow(_TRACE_OPTIONS)
    if not path:
        raise ConfigError(f"{text}: the path is missing, as in trace:azure.csv.gz?scale=2")
    start, end = spec.number("from", 0.0, positive=False), spec.number("to") if "to" in spec.options else None
    if end is not None and end <= start:
        raise ConfigError(f"{text}: `to` must be later than `from`")
    return Trace(
        Path(path).expanduser(),
        scale=spec.number("scale", 1.0),
        start=start,
        end=end,
        first=spec.whole("first") if "first" in spec.options else None,
        spread=spec.number("spread", 0.0, positive=False),
    )
