"""Count answers whose pages are in another memory, until they have been read."""

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling.state import EarlyPages, WaitingAnswers


class Arrivals:
    """Own them, and what can be read of prompts whose answers have not come."""

    def __init__(self) -> None:
        self._early: dict[int, EarlyPages] = {}  # by uid
        self._waiting: dict[int, WaitingAnswers] = {}  # by uid
        self._pulling: set[int] = set()  # uids

    def __len__(self) -> int:
        """Count the requests whose answers have come."""
        return len(self._waiting) + len(self._pulling)

    @property
    def waits(self) -> bool:
        """Tell whether answers are here that are not being read."""
        return bool(self._waiting)

    def in_turn(self) -> list[WaitingAnswers]:
        """Return those that are not being read yet."""
        return sorted(self._waiting.values(), key=lambda answers: answers.ticket.turn)

    def early_in_turn(self) -> list[EarlyPages]:
        """Return what can be read early, and what was."""
        return sorted(self._early.values(), key=lambda early: early.ticket.turn) if self._early else []

    def fill(self, ticket: Ticket, pages: int) -> None:
        """Take in that so many more pages of a prompt can be read."""
        early = self._early.get(ticket.uid, EarlyPages(ticket))
        self._early[ticket.uid] = early._replace(offered=early.offered + pages)

    def pull_early(self, uid: int, pages: int) -> None:
        """Note that so many pages of a prompt have pages here."""
        early = self._early[uid]
        self._early[uid] = early._replace(offered=early.offered - pages, held=early.held + pages)

    def forgo(self, uid: int) -> None:
        """Note that what a request had read early was given back."""
        if early := self._early.get(uid):
            self._early[uid] = early._replace(offered=early.offered + early.held, held=0)
        if answers := self._waiting.get(uid):
            self._waiting[uid] = answers._replace(kv_pages=answers.kv_pages + answers.held, held=0)

    def offer(self, answers: WaitingAnswers) -> None:
        """Take in what can be read. Pages that were read early need not be read again."""
        uid = answers.ticket.uid
        held = self._early.pop(uid).held if uid in self._early else 0
        self._waiting[uid] = answers._replace(kv_pages=answers.kv_pages - held, held=held)

    def pull(self, uid: int) -> None:
        """Note that the pages of a request are being read."""
        del self._waiting[uid]
        self._pulling.add(uid)

    def drop(self, uid: int) -> None:
        """Forget a request, if it is here: all is read, or nothing is wanted any more."""
        self._early.pop(uid, None)
        self._waiting.pop(uid, None)
        self._pulling.discard(uid)
