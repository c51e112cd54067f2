"""What a recorded run was given and how long its steps took: enough to simulate it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Stage
from unifiedserve.recording.records import Looked, Record, Taken
from unifiedserve.scheduling.simulation import Arrival, StageCosts
from unifiedserve.scheduling.state import Plan
from unifiedserve.scheduling.turn import Batched, Begin, Ready, Shape, Stepped
from unifiedserve.scheduling.turn.vision import MediaCame


def arrivals_of(runs: Mapping[str, Sequence[Record]], uids: Iterable[int]) -> list[Arrival]:
    """Return these requests as they came to the workers; each generates as many tokens as it got."""
    records = [record for run in runs.values() for record in run]
    prompts = {each.ticket.uid: each for each in records if isinstance(each, Begin) and each.shape.prefills_here}
    media = {each.ticket.uid: each for each in records if isinstance(each, MediaCame)}
    tokens = Counter(uid for each in records if isinstance(each, Stepped) for uid, _ in each.keys)
    found = []
    for uid in uids:
        ticket, shape = prompts[uid]
        arrival = Arrival(Ticket(uid, ticket.arrival, ticket.priority, ticket.due, ticket.work), _gaps(shape), [], 1)
        if came := media.get(uid):
            units = len(shape.units)
            decode, pages = _decode_seconds(runs.values(), uid) / units, came.patch_pages // units
            arrival = arrival._replace(decode=decode, gop=units, patch_pages=pages, media=1)
        found.append(arrival._replace(units=[unit.tokens for unit in shape.units], generate=1 + tokens[uid]))
    return found


def costs_of(records: Iterable[Record]) -> StageCosts:
    """Return what passes and batches took on average, as costs of each."""
    passes: dict[bool, list[float]] = {True: [], False: []}
    batches = []
    for record in records:
        if isinstance(record, Stepped):
            passes[bool(record.chunks)].append(record.times[-1] - record.times[0])
        elif isinstance(record, Batched) and record.tokens:
            batches.append(record.end - record.start)
    return StageCosts(decode_pass=mean(passes[False]), prefill_pass=mean(passes[True]), encode_batch=mean(batches))


def orders_of(plans: Iterable[tuple[float, Plan]], uids: Iterable[int]) -> dict[Stage, list[int]]:
    """Return in which order these requests came to their turn in each stage, by plans and their times (seconds)."""
    wanted = set(uids)
    orders: dict[Stage, dict[int, None]] = {stage: {} for stage in (Stage.ENCODE, Stage.PREFILL, Stage.DECODE)}
    for _, plan in sorted(plans, key=lambda timed: timed[0]):
        for stage, planned in ((Stage.ENCODE, plan.encode), (Stage.PREFILL, plan.prefill), (Stage.DECODE, plan.decode)):
            orders[stage] |= dict.fromkeys(work[0] for work in planned if work[0] in wanted)
    return {stage: list(order) for stage, order in orders.items()}


def _gaps(shape: Shape) -> list[int]:
    """Return the tokens of text before each unit, and behind the last one."""
    gaps, position = [], 0
    for unit in shape.units:
        gaps.append(unit.position - position)
        position = unit.position + unit.tokens
    return [*gaps, shape.tokens - position]


def _decode_seconds(runs: Iterable[Sequence[Record]], uid: int) -> float:
    """Return the time from when a request was let in to decoding until all of its patches were seen elsewhere."""
    began, ended = float("inf"), 0.0
    for run in runs:
        came = False
        for record in run:
            if isinstance(record, Looked) and uid in record.decision.admit:
                began = min(began, record.facts.now)
            elif isinstance(record, Ready) and record.uid == uid:
                came = True
            elif isinstance(record, Taken) and came:
                came, ended = False, max(ended, record.facts.now)
    return ended - began
