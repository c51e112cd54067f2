"""What quantising at loading (serve --quantization) costs in quality, by scheme, beside bfloat16 and float32.

Two measurements of the same weights:

text   Tokens are predicted from those before them, and the distributions held against float32's: the mean divergence
       (Kullback-Leibler, nats a token), the share of tokens whose likeliest is the same, and the perplexity. "answers"
       are right answers about clips that the bundled model never saw, which is what it has learned; "prose" is --text,
       which it has not: there the perplexity says nothing, the divergence does. The bench's checkpoint of half a
       billion parameters has random weights: only how far they are from float32 is of interest.
exam   A daemon for each scheme is asked the bundled model's examination (training/accuracy.py), the same files and
       questions for all: the share of right answers by category, and of how many the verdict differs from bfloat16's.

    python bench/quantization.py                  # all of it, half an hour of two cores; results in bench/results
    python bench/quantization.py --quick          # a few minutes: small texts, 20 files, no large checkpoint
    python bench/quantization.py --schemes int4   # only this one beside float32 and bfloat16

vision-int8 quantises the vision tower and nothing else, the others the language model. The exit code is 1 if a scheme
loses more of the examination than it may: int8 and vision-int8 one point, int4 three.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from serve_cpu import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where training/ is

from divergence import Divergence, answers, diverge, prose
from quantization_report import BASE, REFERENCE, VISION, Exam, markdown, missed, save

from training.accuracy import Marks
from training.examination import Paper, examine, papers
from unifiedserve.cli.daemon import daemon
from unifiedserve.config import EngineConfig
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.models.default import DEFAULT_CHECKPOINT

RESULTS = Path(__file__).parent / "results"
LICENSE = Path(__file__).parents[1] / "LICENSE"


def options(scheme: str) -> dict[str, str]:
    """Return the daemon's options for a scheme."""
    if scheme in (REFERENCE, BASE):
        return {"dtype": scheme}
    return {"dtype": BASE, "vision_quantization" if scheme == VISION else "quantization": scheme.rpartition("-")[2]}


def texts(schemes: Sequence[str], text: Path, tokens: int, large: Path | None) -> dict[str, dict[str, Divergence]]:
    """Measure every text by every scheme."""
    configs = {scheme: EngineConfig.of(**options(scheme)) for scheme in schemes}
    words = text.read_text()
    found = {
        "answers": diverge(DEFAULT_CHECKPOINT, answers(DEFAULT_CHECKPOINT, tokens), configs),
        f"prose ({text.name})": diverge(DEFAULT_CHECKPOINT, prose(DEFAULT_CHECKPOINT, words, tokens), configs),
    }
    if large:
        if not (large / "config.json").exists():
            checkpoint.make(large)
        found[f"prose ({text.name}), half a billion random weights"] = diverge(
            large, prose(large, words, tokens // 4), configs
        )
    return found


def sit(scheme: str, files: Sequence[Paper], folder: Path) -> Marks:
    """Ask a daemon of a scheme all questions about the files, and mark its answers."""
    marks = Marks()
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options(scheme).items()]
    with daemon("", "--allowed-local-media-path", str(folder), *given) as started:
        for paper, turn, answer in examine(started.url, files):
            marks.add(paper, turn, answer)
    return marks


def exams(schemes: Sequence[str], scenes: int, console: Console) -> dict[str, Exam]:
    """Have every scheme sit the examination about the same files."""
    with tempfile.TemporaryDirectory() as folder:
        files = list(papers(scenes, Path(folder)))
        marks = {}
        for scheme in schemes:
            console.print(f"examination: {scheme}")
            marks[scheme] = sit(scheme, files, Path(folder))
    return {scheme: Exam.of(each, marks[BASE]) for scheme, each in marks.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", nargs="+", default=["int8", "int4", VISION], help="quantised ones (default: all)")
    parser.add_argument("--text", type=Path, default=LICENSE, help="the prose (default: the licence of this project)")
    parser.add_argument(
        "--tokens",
        type=int,
        default=4096,
        help="of each text, of the large one's a quarter (default: 4096)",
    )
    parser.add_argument(
        "--scenes",
        type=int,
        default=200,
        help="files of the examination, each with a dozen questions (default: 200)",
    )
    parser.add_argument(
        "--large",
        type=Path,
        default=checkpoint.DEFAULT_FOLDER,
        help="half a billion parameters; made if missing, 1.2 GB",
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch, for the texts (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="little of everything: to see that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of quantization.json, .md and .png")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console, wanted = Console(), [REFERENCE, BASE, *args.schemes]
    tokens, scenes = (512, min(20, args.scenes)) if args.quick else (args.tokens, args.scenes)
    found = texts(wanted, args.text, tokens, None if args.quick else args.large)
    exam = exams(wanted, scenes, console) if scenes else {}
    result = found, exam, " ".join(["python", *sys.argv]), describe_machine()
    print(markdown(*result))
    save(args.results, *result)
    return int(bool(missed(exam)))


if __name__ == "__main__":
    raise SystemExit(main())
