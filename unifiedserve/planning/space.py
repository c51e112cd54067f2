"""Define the candidates over some devices for a search: a method, one of its placements, and its options."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from unifiedserve.config import Order
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.case import Case
from unifiedserve.planning.goodput import highest
from unifiedserve.planning.layouts import Layout, layouts
from unifiedserve.planning.options import Objective

_ORDERS: list[Order] = ["slack", "shortest", "fcfs"]
_TOKENS = (8, 13)  # powers of two that the budgets of a step may be
_RUNNING = (3, 9)  # powers of two of answers at a time
_DEFAULTS = Candidate(method="", label="", placement="", targets=True)  # a server's, which is told the targets

Choices = dict[str, Any]


class Chooser(Protocol):
    """Make choices by name: a trial of Optuna's."""

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        """Return one of the choices."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""


class Space:
    """Hold all candidates over exactly so many devices.

    Each method's placements are in the order of what bounds say.
    """

    def __init__(self, case: Case, devices: int, objective: Objective) -> None:
        self._layouts: dict[str, list[tuple[float, Layout]]] = {}
        for layout in layouts(case.profile.device, devices):
            candidate = _candidate(layout)
            if case.fits(candidate):
                self._layouts.setdefault(layout.method, []).append((highest(case, candidate, objective), layout))
        for some in self._layouts.values():
            some.sort(key=lambda one: -one[0])
        self._has_targets = not case.slo.asks_nothing

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self._layouts)

    def first(self, known: Sequence[Candidate]) -> Iterator[Choices]:
        """Yield what to try first: what does well with other devices, and of each method what may reach the most."""
        for candidate in known:
            if candidate.method in self._layouts:
                yield _choices(candidate.method, 0, candidate)
        methods = sorted(self._layouts, key=lambda method: -self._layouts[method][0][0])
        yield from (_choices(method, 0) for method in methods)
        yield from (_choices(method, 1) for method in methods if len(self._layouts[method]) > 1)

    def choose(self, chooser: Chooser) -> Candidate:
        """Return a candidate by choices."""
        method = chooser.suggest_categorical("method", list(self._layouts))
        some = self._layouts[method]
        layout = (
            some[chooser.suggest_int(f"placement of {method}", 0, len(some) - 1)][1] if len(some) > 1 else some[0][1]
        )
        plain = _candidate(layout)
        return _candidate(
            layout,
            order=chooser.suggest_categorical("order", _ORDERS),
            prefill_chunk_tokens=1 << chooser.suggest_int("prefill tokens", *_TOKENS),
            encode_budget_tokens=1 << chooser.suggest_int("encode tokens", *_TOKENS),
            max_running=1 << chooser.suggest_int("running", *_RUNNING),
            targets=chooser.suggest_categorical("targets", [True, False]) if self._has_targets else False,
            dual_streams=chooser.suggest_categorical("dual streams", ["auto", "on"]) if plain.may_run_dual else "auto",
            irp=chooser.suggest_categorical("irp", ["auto", "off"]) if plain.has_parallel_encoders else "auto",
        )


def _choices(method: str, place: int, like: Candidate = _DEFAULTS) -> Choices:
    """Return a placement's choices, by its place in its method, with a candidate's options."""
    return {
        "method": method,
        f"placement of {method}": place,
        "order": like.order,
        "prefill tokens": like.prefill_chunk_tokens.bit_length() - 1,
        "encode tokens": like.encode_budget_tokens.bit_length() - 1,
        "running": like.max_running.bit_length() - 1,
        "targets": like.targets,
        "dual streams": like.dual_streams,
        "irp": like.irp,
    }


def _candidate(layout: Layout, **options: Any) -> Candidate:
    return Candidate(
        method=layout.method, label=layout.label, placement=layout.placement, devices=layout.devices, **options
    )
