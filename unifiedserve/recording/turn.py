"""Take turns that record what they are told and what they decide."""

from unifiedserve.recording.log import Log
from unifiedserve.recording.records import Between, Looked, Made, MadeVision, Taken, encode
from unifiedserve.scheduling.turn import Decision, Event, Facts, Turn
from unifiedserve.scheduling.turn.vision import VisionDecision, VisionEvent, VisionFacts, VisionTurn


class RecordedTurn(Turn):
    """Decide as any other turn. Its driver never notices the log."""

    def __init__(self, made: Made, log: Log) -> None:
        super().__init__(made.hosted, made.budget, rests=made.rests, share=made.share, steps=made.steps)
        self._log = log
        log.add(encode(made))

    def note(self, event: Event) -> None:
        self._log.add(encode(event))  # first: one that raises may have changed the turn
        super().note(event)

    def take(self, facts: Facts) -> Decision:
        decision = super().take(facts)
        self._log.add(encode(Taken(facts, decision)))
        self._log.flush_now_and_then(facts.now)
        return decision

    def between(self, facts: Facts) -> Decision:
        decision = super().between(facts)
        self._log.add(encode(Between(facts, decision)))
        return decision


class RecordedVisionTurn(VisionTurn):
    """Decide as any other turn of vision. Its driver never notices the log."""

    def __init__(self, made: MadeVision, log: Log) -> None:
        super().__init__(made.order)
        self._log = log
        log.add(encode(made))

    def note(self, event: VisionEvent) -> None:
        self._log.add(encode(event))
        super().note(event)

    def take(self, facts: VisionFacts) -> VisionDecision:
        decision = super().take(facts)
        self._log.add(encode(Looked(facts, decision)))
        self._log.flush_now_and_then(facts.now)
        return decision
