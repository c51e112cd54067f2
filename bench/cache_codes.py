"""What a KV cache of codes costs in quality: how far off answers and the log probabilities of right ones are.

The bundled model is asked about videos of scenes that it was never trained on: once as a user does, once with the right
answer in the prompt, whose tokens it then scores. Four daemons differ in --dtype and --kv-cache-dtype alone; the first
one, float32 without codes, is what the others are compared with.

    python bench/cache_codes.py --scenes 30
"""

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from training.examination import Paper, is_right, papers
from training.world.questions import Turn
from unifiedserve.cli.daemon import daemon
from unifiedserve.doctor.machine import describe_machine

DAEMONS = {
    "float32": ("float32", "auto"),
    "float32, cache of int8": ("float32", "int8"),
    "bfloat16": ("bfloat16", "auto"),
    "bfloat16, cache of int8": ("bfloat16", "int8"),
}
ANSWER_BEGINS, SPOKEN = "<|im_start|>", 3  # the tokens that say who speaks are no part of the answer


class Score(NamedTuple):
    """An answer, whether it is right, and the log probabilities of the right one's tokens."""

    answer: str
    right: bool
    logprobs: list[float]


def score(client: httpx.Client, paper: Paper, turn: Turn) -> Score:
    """Ask one question, and have its right answer scored."""
    parts = [{"type": "video_url", "video_url": {"url": paper.file.as_uri()}}, {"type": "text", "text": turn.question}]
    asked = {"role": "user", "content": parts}
    answer = reply(client, [asked], max_tokens=60)["choices"][0]["message"]["content"]
    told = [asked, {"role": "assistant", "content": turn.answer}]
    scored = reply(client, told, max_tokens=1, prompt_logprobs=0, add_generation_prompt=False)["prompt_logprobs"]
    tokens = [next(iter(entry.values())) for entry in scored[1:]]
    begin = max(i for i, token in enumerate(tokens) if token["decoded_token"] == ANSWER_BEGINS) + SPOKEN
    return Score(answer, is_right(paper.scene, turn, answer), [token["logprob"] for token in tokens[begin:-1]])


def reply(client: httpx.Client, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Return the body of a chat completion."""
    body = {"messages": messages, "temperature": 0, **options}
    answer: dict[str, Any] = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    return answer


def examine(asked: list[tuple[Paper, Turn]], folder: str, dtype: str, cache: str) -> list[Score]:
    """Return the scores of all questions by a daemon of these types."""
    options = ["--dtype", dtype, "--kv-cache-dtype", cache, "--allowed-local-media-path", folder]
    with (
        daemon("", *options) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        return list(pool.map(lambda each: score(client, *each), asked))


def compared(scores: list[Score], exact: list[Score]) -> dict[str, float]:
    """Return the figures of one daemon."""
    both = zip(scores, exact, strict=True)
    deviations = np.abs(np.concatenate([np.subtract(ours.logprobs, theirs.logprobs) for ours, theirs in both]))
    answers = [ours.answer == theirs.answer for ours, theirs in zip(scores, exact, strict=True)]
    return {
        "mean deviation": float(deviations.mean()),
        "99th percentile": float(np.percentile(deviations, 99)),
        "largest": float(deviations.max()),
        "same answers": float(np.mean(answers)),
        "right answers": float(np.mean([each.right for each in scores])),
    }


def main(
    scenes: Annotated[int, typer.Option(min=1, help="Scenes, of which videos each get a dozen questions")] = 30,
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/cache-codes.json"
    ),
) -> None:
    """Score the same answers with four daemons, and show how far they are apart."""
    with tempfile.TemporaryDirectory() as folder:
        videos = [paper for paper in papers(scenes, Path(folder)) if not paper.scene.still]
        asked = [(paper, turn) for paper in videos for turn in paper.turns]
        scores = {name: examine(asked, folder, *options) for name, options in DAEMONS.items()}
    exact, *_ = scores.values()
    figures = {name: compared(each, exact) for name, each in scores.items()}
    table = Table("", *figures[next(iter(figures))], title=f"{len(asked)} questions")
    for name, row in figures.items():
        table.add_row(name, *(f"{value:.4f}" for value in row.values()))
    Console().print(table)
    result = {"command": " ".join(["python", *sys.argv]), "machine": describe_machine(), "questions": len(asked)}
    result["tokens"] = sum(len(each.logprobs) for each in exact)
    json_file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_text(json.dumps({**result, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
