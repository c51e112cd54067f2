"""Run the demonstration: a daemon of its own, questions about sample clips, the answers and their timelines."""

from pathlib import Path

from unifiedserve.cli.ask import Question, run_all
from unifiedserve.samples import FOLDER, sample_questions


def run(model: str, video: Path | None, question: str, max_tokens: int) -> int:
    """Ask a question about each sample, or `question` about `video` instead.

    Return the exit code, and raise ConfigError, as `ask.run_all` does.
    """
    wanted = [(FOLDER / name, questions[0]) for name, questions in sample_questions().items()]
    if video or question:
        wanted = [(video or wanted[0][0], question or "Describe the video.")]
    return run_all([Question(text=text, medium=medium, max_tokens=max_tokens) for medium, text in wanted], model=model)
