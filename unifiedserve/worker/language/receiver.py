"""Read what other memories offer when the turn says so. Then it is treated as sent within one."""

from collections.abc import Callable, Iterable

from unifiedserve.carriers.base import Carrier
from unifiedserve.messages.pages import PageOffer
from unifiedserve.messages.wire import Answers, Embeddings, FilledPages, Generation
from unifiedserve.scheduling import Pull
from unifiedserve.scheduling.turn import AnswersOffered, Forgone, Note, PagesFilled, Pulling, Stopped, UnitOffered
from unifiedserve.worker.language.foreign_answers import ForeignAnswers
from unifiedserve.worker.language.foreign_prompts import ForeignPrompts
from unifiedserve.worker.language.foreign_units import ForeignUnits
from unifiedserve.worker.language.reads import Reads
from unifiedserve.worker.language.stages import LanguageStages
from unifiedserve.worker.port import Port


class Receiver:
    """Own what is offered to the language stages, and the reading of it."""

    def __init__(
        self,
        stages: LanguageStages,
        port: Port,
        carrier: Carrier | None,
        note: Note,
        take_unit: Callable[[Embeddings], None],
        take_answer: Callable[[Generation], None],
        start_anew: Callable[[int, str], None],
    ) -> None:
        """Hand units and answers over once they are here; hear which prompts (uid) have lost some, and why."""
        self._note = note
        self._start_anew = start_anew
        self._reads = Reads(carrier, port.reporter)
        buffer, common = stages.visual, (stages.instance, self._reads, port.outbox)
        self._units = ForeignUnits(buffer, *common, stages.prompts, stages.prefill.visual_log, take_unit, start_anew)
        self._answers = ForeignAnswers(stages.model.kv, buffer, *common, take_answer, self._lost)
        self._prompts = ForeignPrompts(stages.model.kv, stages.instance, self._reads, self._lost)

    def offer_unit(self, message: Embeddings, offer: PageOffer) -> None:
        """Take in where the visual tokens of a prompt that is here can be read."""
        self._units.offer(message, offer)
        self._note(UnitOffered(message.uid, message.unit))

    def offer_answers(self, message: Answers) -> None:
        """Take in where a prompt's answers can be read. Pages that were read early are left out."""
        taken, read = self._prompts.take(message.uid, message.offer.kv)
        self._note(AnswersOffered(self._answers.offer(message, taken, read)))

    def offer_full_pages(self, message: FilledPages) -> None:
        """Take in where full pages of a prompt are, or that no answers come."""
        uid, count = message.ticket.uid, len(message.offer.kv.numbers)
        if count:
            self._prompts.offer(message)
            self._note(PagesFilled(message.ticket, count))
        else:
            self._prompts.drop(uid)
            self._lost(uid)

    def pull(self, pulls: Iterable[Pull]) -> None:
        """Begin to read what is planned.

        Pages that another instance has just taken are left out: the read is planned again.
        """
        for uid, units, early in pulls:
            if early:
                if self._prompts.begin(uid, early):
                    self._note(Pulling(uid, units, early))
                continue
            taken = self._units.begin(uid, units) if units else self._answers.begin(uid)
            if taken == "taken":
                self._note(Pulling(uid, units))
            elif taken == "stale":
                self._start_anew(uid, "")

    def forgo(self, uids: Iterable[int]) -> None:
        """Give back what was read early of these requests."""
        for uid in uids:
            if not self._prompts.forgo(uid):
                self._answers.forgo(uid)
            self._note(Forgone(uid))

    def take_ended(self) -> None:
        """Hand over what has been read."""
        self._reads.take_ended()

    def drop_prompt(self, uid: int) -> None:
        """Forget what is offered or read of a prompt's units."""
        self._units.drop(uid)

    def drop_answers(self, uid: int, index: int | None) -> bool:
        """Forget what is offered or read of an answer, or of all (None); return whether none of any are left."""
        return self._answers.drop(uid, index) or (index is None and self._prompts.drop(uid))

    def shut(self) -> None:
        """End all reading."""
        self._reads.shut()

    def _lost(self, uid: int) -> None:
        self._note(Stopped(uid))
