"""Read full pages of prompts that another memory prefills early. Others get these pages when they need them.

They have what nobody else needs, and go as soon as somebody does. So early reads wait for nothing here, and nobody
waits for them: pages read during prefill need not be read at its end, and that is all.
"""

from collections.abc import Iterable

from unifiedserve.scheduling.state import EarlyPages, Pull, State, WaitingAnswers

_KEPT_FREE = 4  # the part of the KV cache that is left to sequences that grow is one of so many

_Held = EarlyPages | WaitingAnswers


def schedule_early(state: State) -> list[Pull]:
    """Return what is read early. Nothing is while answers that have come are unread, or others take pages."""
    left = state.kv_free - state.kv_total // _KEPT_FREE - len(state.decodes)
    left -= sum(answers.kv_pages for answers in state.arriving)
    pulls = []
    for early in state.early if not state.shares_kv else ():
        left -= early.offered
        if left < 0:
            break
        if early.offered:
            pulls.append(Pull(early.ticket.uid, early=early.offered))
    return pulls


def schedule_forgone(state: State) -> list[int]:
    """Return the requests (uid) that give back what they have read early.

    The last in turn do, until each sequence has a page for its next tokens, and then until the first answers have pages
    that find none. Where other instances take pages of the KV cache all do, as these cannot ask for them.
    """
    both: tuple[Iterable[_Held], ...] = (state.early, state.arriving)
    held = [each for some in both for each in some if each.held]
    if state.shares_kv or not held:
        return [each.ticket.uid for each in held]
    lacking, waiting = len(state.decodes) - state.kv_free, None
    for answers in state.arriving:
        if lacking > 0:
            break
        lacking, waiting = lacking + answers.kv_pages, answers.ticket.turn
    if waiting is not None:
        held = [each for each in held if each.ticket.turn > waiting]
        if sum(each.held for each in held) < lacking:
            return []  # it would not help
    return _last_in_turn(held, lacking)


def _last_in_turn(held: list[_Held], lacking: int) -> list[int]:
    """Return those that hold so many pages at least, or all."""
    forgone = []
    for each in sorted(held, key=lambda each: each.ticket.turn, reverse=True):
        if lacking <= 0:
            break
        lacking -= each.held
        forgone.append(each.ticket.uid)
    return forgone
