"""What is asked while a worker has a fault: streams of text, and a mix of everything beside them."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from bench.campaign.travel import SAMPLES, Question, questions, text, video
from unifiedserve.messages.api import MediaInput
from unifiedserve.messages.media import MediaOptions

_BROUGHT = (SAMPLES / "shapes-motion.mp4").read_bytes()


class Asked(NamedTuple):
    """A question, and after how many pieces of its answers the client leaves, if it does."""

    number: int
    leaves: int | None = None


def stream(tokens: int) -> Question:
    """Return what a stream answers."""
    return Question("stream", [text("Tell of a river, a boat and a bird.")], [], tokens)


def mixed() -> list[Question]:
    """Return texts, images and videos, one as bytes, one larger than the buffers."""
    brought = MediaInput(kind="video", data=_BROUGHT, options=MediaOptions(num_frames=4))
    watch: list[dict[str, object]] = [{"type": "video"}, text("What moves?")]
    return [
        *questions(),
        Question("video as bytes", watch, [brought], 20),
        Question("video larger than the buffers", watch, [video(48)], 20),
    ]


def draw(random: Random, count: int) -> Sequence[Asked]:
    """Return which questions are asked together; a fifth of the clients leave."""
    numbers = range(len(mixed()))
    leaving = [random.randrange(15) if random.random() < 0.2 else None for _ in range(count)]
    return [Asked(random.choice(numbers), leaves) for leaves in leaving]
