"""Decide what is read from other memories, and when (HydraInfer §4.3, migration, seen from its target).

A request takes all pages that it will need of a pool, or none, in the order of service; then it reads at once. Pages
that nobody reads stay where they are, so that a full target holds its sources back instead of overflowing.
"""

from collections.abc import Collection

from unifiedserve.messages.ticket import Place
from unifiedserve.scheduling.early_reads import schedule_early
from unifiedserve.scheduling.state import Pull, State, WaitingAnswers

READ_SECONDS = 0.004  # in which units are mostly read


def schedule_pulls(state: State) -> list[Pull]:
    """Return the units of prompts, and the requests whose answers, are to be read now."""
    pulls, visual_free = _units(state)
    fitting = _fitting(state, visual_free)
    pulls += [Pull(answers.ticket.uid) for answers in fitting]
    return pulls if len(fitting) < len(state.arriving) else [*pulls, *schedule_early(state)]


def first_left(state: State, pulls: Collection[Pull]) -> Place | None:
    """Return the place of the first whose answers are not read when these are; None if there is none."""
    read = {pull.uid for pull in pulls}
    return next((answers.place for answers in state.arriving if answers.ticket.uid not in read), None)


def _units(state: State) -> tuple[list[Pull], int]:
    """Return the units to read, and the pages of the visual buffer left beside them."""
    free, pulls = state.visual_free, []
    for prompt in state.offering:
        if not prompt.has_room:
            free -= prompt.room_pages
            if free < 0:  # those behind it wait, too, but for what has room already
                continue
        pulls.append(Pull(prompt.ticket.uid, list(prompt.offered)))
    return pulls, free


def _fitting(state: State, visual_free: int) -> list[WaitingAnswers]:
    """Return those that have pages, in turn; as many are kept back as sequences may need for their next tokens."""
    kv_free, fitting = state.kv_free - len(state.decodes), []
    for answers in state.arriving:
        kv_free -= answers.kv_pages
        visual_free -= answers.visual_pages
        full = kv_free < 0 or (answers.visual_pages and visual_free < 0)
        if full or (state.first_elsewhere is not None and state.first_elsewhere < answers.place):
            break
        fitting.append(answers)
    return fitting
