"""Print a plan as tables in a terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unifiedserve.planning.explanation import explain
from unifiedserve.planning.files import flags
from unifiedserve.planning.plan import Choice, Plan


def show(plan: Plan, console: Console) -> None:
    """Print the best placement and its runners-up, with reasons. The results of fewer devices follow."""
    if plan.interrupted:
        console.print("[yellow]interrupted: this is the best so far[/]")
    if plan.choices:
        console.print(_table(plan))
    for choice in plan.choices:
        console.print(f"{choice.label}: {' '.join(flags(choice.options))}", style="dim", highlight=False)
    for line in explain(plan):
        console.print(f"• {line}", highlight=False, markup=False)
    if len(plan.front) > 1:
        front = ", ".join(f"{each.devices}: {each.value:.3g}/s ({each.label})" for each in plan.front)
        console.print(f"the most by devices: {front}", highlight=False)
    tried = f"{plan.candidates} candidates, {plan.ruled_out} of them ruled out early"
    console.print(f"{tried}, {plan.simulations} simulations, {plan.seconds:.0f} s", style="dim", highlight=False)


def _table(plan: Plan) -> Table:
    what = "goodput" if plan.objective == "goodput" else "throughput"
    what_for = f"{plan.workload} ({plan.requests} requests), {plan.model} on {plan.devices} x {plan.hardware}"
    table = Table(title=escape(what_for))
    table.add_column("placement", overflow="fold")
    table.add_column("devices", justify="right")
    for heading in (f"{what}\n1/s", "TTFT p50\ns", "TTFT p90\ns", "TBT p99\nms"):
        table.add_column(heading, justify="right")
    for choice in plan.choices:
        table.add_row(*_row(plan, choice))
    return table


def _row(plan: Plan, choice: Choice) -> list[str]:
    seen = choice.seen
    figures = [_figure(seen.ttft_p50), _figure(seen.ttft_p90), _figure(seen.tbt_p99, 1000)]
    least = "≥ " if plan.objective == "goodput" and choice.too_high is None else ""  # no higher rate was tried
    return [choice.label, str(choice.devices), f"{least}{choice.value:.3g}", *figures]


def _figure(seconds: float | None, factor: float = 1) -> str:
    return "" if seconds is None else f"{factor * seconds:.3g}"
