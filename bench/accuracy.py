"""How often the bundled model is right, over HTTP, about encoded files of scenes that it was never trained on.

python bench/accuracy.py --scenes 200
"""

import base64
import io
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from machine import describe_machine
from PIL import Image
from rich.console import Console
from rich.table import Table
from streams import daemon

import flashcodec
from unifiedserve.demo.examination import Paper, is_right, papers, row_of
from unifiedserve.demo.world.questions import Turn
from unifiedserve.models.default import default_checkpoint

TARGETS = {
    "colour": 0.95,
    "shape": 0.95,
    "count up to three": 0.95,
    "direction": 0.95,
    "order": 0.90,
    "quadrant": 0.90,
    "time": 0.85,
    "time, minutes long": 0.85,
}
JPEG_QUALITY = 75


def part(paper: Paper) -> dict[str, Any]:
    """The medium as a part of a message: a still scene as the JPEG of its only frame."""
    if not paper.scene.still:
        return {"type": "video_url", "video_url": {"url": paper.file.as_uri()}}
    buffer = io.BytesIO()
    Image.fromarray(flashcodec.sample(paper.file, indices=[0]).data[0]).save(buffer, "JPEG", quality=JPEG_QUALITY)
    text = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{text}"}}


def answer(client: httpx.Client, medium: dict[str, Any], turn: Turn) -> str:
    content = [medium, {"type": "text", "text": turn.question}]
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 60}
    reply = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    text: str = reply["choices"][0]["message"]["content"]
    return text


def examine(url: str, scenes: int, folder: Path) -> Iterator[tuple[Paper, Turn, str]]:
    with httpx.Client(base_url=url, timeout=600) as client, ThreadPoolExecutor(4) as pool:
        for paper in papers(scenes, folder):
            medium = part(paper)
            for turn, text in zip(paper.turns, pool.map(lambda t: answer(client, medium, t), paper.turns), strict=True):  # noqa: B023
                yield paper, turn, text


def main(
    model: Annotated[Path | None, typer.Option(help="Checkpoint; default: the bundled one")] = None,
    scenes: Annotated[int, typer.Option(help="Files, each with a dozen questions")] = 200,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the shares and wrong answers go")] = None,
) -> None:
    """Shares of right answers by category, beside what they should be."""
    results: dict[str, list[bool]] = defaultdict(list)
    wrong = []
    with tempfile.TemporaryDirectory() as name, daemon(model or default_checkpoint(), Path(name)) as url:
        for paper, turn, text in examine(url, scenes, Path(name)):
            right = is_right(paper.scene, turn, text)
            results[row_of(paper.scene, turn)].append(right)
            if not right:
                wrong.append({"question": turn.question, "right": turn.answer, "answer": text})
    table = Table("category", "questions", "right", "target")
    shares = {row: sum(own) / len(own) for row, own in sorted(results.items())}
    for row, share in shares.items():
        target = f"{TARGETS[row]:.0%}" if row in TARGETS else ""
        table.add_row(row, str(len(results[row])), f"{share:.1%}", target)
    Console().print(table)
    if json_file:
        counts = {row: len(own) for row, own in results.items()}
        values = {"machine": describe_machine(), "questions": counts, "right": shares, "wrong": wrong}
        json_file.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
