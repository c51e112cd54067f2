"""Answers whose pages are in another memory, in numbers: until they have been read."""

from unifiedserve.scheduling.state import WaitingAnswers


class Arrivals:
    """Owns them."""

    def __init__(self) -> None:
        self._waiting: dict[int, WaitingAnswers] = {}  # by uid
        self._pulling: set[int] = set()  # uids

    def __len__(self) -> int:
        """Count the requests."""
        return len(self._waiting) + len(self._pulling)

    def in_turn(self) -> list[WaitingAnswers]:
        """Return those that are not being read yet."""
        return sorted(self._waiting.values(), key=lambda answers: answers.ticket.turn)

    def offer(self, answers: WaitingAnswers) -> None:
        """Take in what can be read."""
        self._waiting[answers.ticket.uid] = answers

    def pull(self, uid: int) -> None:
        """Note that the pages of a request are being read."""
        del self._waiting[uid]
        self._pulling.add(uid)

    def drop(self, uid: int) -> None:
        """Forget a request, if it is here: all is read, or nothing is wanted any more."""
        self._waiting.pop(uid, None)
        self._pulling.discard(uid)
