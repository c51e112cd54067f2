"""The demonstration: a daemon of its own, one question about a sample clip, the answer and its timeline."""

from pathlib import Path

from unifiedserve import ask

_SAMPLE = Path(__file__).parents[1] / "samples" / "telescope.mp4"


def run(model: str, video: Path | None, question: str, max_tokens: int) -> int:
    """Returns the exit code, and raises ConfigError, as `ask.run` does."""
    return ask.run(ask.Question(text=question, medium=video or _SAMPLE, max_tokens=max_tokens), model=model)
