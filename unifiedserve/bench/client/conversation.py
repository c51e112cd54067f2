"""Hold a conversation: its turns one after another, each with all that was said before."""

from collections.abc import Callable

from unifiedserve.bench.client.answer import Answer
from unifiedserve.bench.client.body import Bodies
from unifiedserve.bench.client.clock import Clock
from unifiedserve.bench.client.endpoint import Endpoint
from unifiedserve.bench.records import Record
from unifiedserve.bench.requests import Expected, Medium, Request, Turn

_AHEAD = 0.25  # seconds before a first turn is due, at which its body is made

Judge = Callable[[Record, Answer, Expected], bool | None]


class Speaker:
    """Hold conversations. Each record goes to `sent` before it is sent, and to `ended` when its answer has ended."""

    def __init__(
        self,
        endpoint: Endpoint,
        bodies: Bodies,
        clock: Clock,
        *,
        judge: Judge | None = None,
        sent: Callable[[Record], None],
        ended: Callable[[Record], None],
    ) -> None:
        self._endpoint = endpoint
        self._bodies = bodies
        self._clock = clock
        self._judge = judge
        self._sent = sent
        self._ended = ended

    async def hold(self, request: Request, due: float) -> None:
        """Send a request's turns, the first at `due`, until one fails or all are answered."""
        answers: list[str] = []
        for number in range(len(request.turns)):
            if number == 0:
                await self._clock.sleep_until(due - _AHEAD)
            body = self._bodies.make(request.turns[: number + 1], answers)
            await self._clock.sleep_until(due)
            record = await self._ask(request, number, due, body)
            if record.error is not None:
                return
            answers.append(record.text)
            if number + 1 < len(request.turns):
                due = record.ended + request.turns[number + 1].pause

    async def _ask(self, request: Request, number: int, due: float, body: bytes) -> Record:
        turn = request.turns[number]
        record = Record(
            request=request.id,
            turn=number,
            kind=request.kind,
            due=due,
            sent=self._clock.now(),
            video_seconds=_video_seconds(turn),
        )
        self._sent(record)
        answer = await self._endpoint.ask(body, record)
        if record.error is None:
            record.error = _missing(turn, record, self._bodies.exact)
        if self._judge and turn.expected and record.error is None:
            record.right = self._judge(record, answer, turn.expected)
        self._ended(record)
        return record


def _missing(turn: Turn, record: Record, exact: bool) -> str | None:
    """Say what an answer lacks."""
    got = len(record.token_times)
    if got == 0:
        return "the answer has no tokens"
    if exact and turn.exact and got != turn.max_tokens:
        return f"asked for {turn.max_tokens} tokens, got {got}"
    return None


def _video_seconds(turn: Turn) -> float:
    return sum(part.seconds for part in turn.parts if isinstance(part, Medium) and part.kind == "video")
