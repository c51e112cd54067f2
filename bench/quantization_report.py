"""Quantised models' quality as a table and a picture."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from divergence import Divergence

from training.accuracy import Marks

REFERENCE, BASE, VISION = "float32", "bfloat16", "vision-int8"
LIMITS = {"int8": 0.01, "int4": 0.03, VISION: 0.01}  # of the examination that may be lost


Texts = Mapping[str, Mapping[str, Divergence]]  # by text and scheme


@dataclass
class Exam:
    """A scheme's marks: by category, of all questions, and how many it gains and loses beside bfloat16."""

    right: dict[str, float]
    questions: dict[str, int]
    overall: float
    gained: int
    lost: int

    @classmethod
    def of(cls, marks: Marks, base: Marks) -> "Exam":
        """Hold marks against those of bfloat16 for the same questions."""
        pairs = list(zip(_verdicts(marks), _verdicts(base), strict=True))
        overall = sum(right for right, _ in pairs) / len(pairs)
        return cls(marks.shares(), marks.counts(), overall, pairs.count((True, False)), pairs.count((False, True)))


def _verdicts(marks: Marks) -> list[bool]:
    return [right for row in marks.rows.values() for right in row]


Exams = Mapping[str, Exam]  # by scheme


def text_table(found: Texts) -> list[str]:
    """Return lines of Markdown."""
    lines = ["| text | tokens | scheme | weights, MB | divergence, nats a token | same likeliest token | perplexity |"]
    lines.append("| --- | ---: | --- |" + " ---: |" * 4)
    for text, schemes in found.items():
        for scheme, each in schemes.items():
            perplexity = f"{each.perplexity:.4g}" if each.perplexity < 1e4 else f"{each.perplexity:.1e}"
            figures = f"{each.weights_bytes / 1e6:.1f} | {each.kl:.2g} | {each.agreement:.1%} | {perplexity}"
            lines.append(f"| {text} | {each.tokens} | {scheme} | {figures} |")
    return lines


def exam_table(found: Exams) -> list[str]:
    """Return lines of Markdown: a row a category, a column a scheme, the differences to bfloat16 in points."""
    base = found[BASE]
    lines = [f"| category | questions | {' | '.join(found)} |", "| --- |" + " ---: |" * (1 + len(found))]
    for row, count in base.questions.items():
        lines.append(
            f"| {row} | {count} | {' | '.join(_cell(each.right[row], base.right[row]) for each in found.values())} |"
        )
    cells = [f"**{_cell(each.overall, base.overall)}**" for each in found.values()]
    lines.append(f"| **all** | {sum(base.questions.values())} | {' | '.join(cells)} |")
    cells = [f"+{each.gained} −{each.lost}" for each in found.values()]
    lines.append(f"| answers gained, lost | | {' | '.join(cells)} |")
    return lines


def _cell(share: float, base: float) -> str:
    points = round(100 * (share - base), 1)
    return f"{share:.1%}" if points == 0 else f"{share:.1%} ({points:+.1f})"


def missed(found: Exams) -> list[str]:
    """Return the schemes that lose more than they may."""
    return [
        name for name, limit in LIMITS.items() if name in found and found[BASE].overall - found[name].overall > limit
    ]


def markdown(found: Texts, exam: Exams, command: str, machine: Mapping[str, str]) -> str:
    """Return the report; without an examination only what there is of the texts."""
    lines = [
        "# Quality of quantised weights",
        "",
        f"`{command}`, {machine['cpu']}, {machine['date']}. What is measured, and on what, `--help` tells.",
        "",
        *text_table(found),
        "",
    ]
    if exam:
        verdict = ", ".join(missed(exam)) or "none"
        lines += [
            "In brackets: points more or less than bfloat16.",
            "",
            *exam_table(exam),
            "",
            f"May be lost: int8 and vision-int8 one point, int4 three. Schemes that lose more: {verdict}.",
            "",
            "![Right answers by category, and divergence by text](quantization.png)",
            "",
        ]
    return "\n".join(lines)


def save(folder: Path, found: Texts, exam: Exams, command: str, machine: Mapping[str, str]) -> None:
    """Write quantization.json, .md and, of an examination, .png."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        text: {scheme: asdict(each) | {"perplexity": each.perplexity} for scheme, each in schemes.items()}
        for text, schemes in found.items()
    }
    exams = {scheme: asdict(each) for scheme, each in exam.items()}
    result = {"command": command, "machine": machine, "texts": texts, "examination": exams}
    (folder / "quantization.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "quantization.md").write_text(markdown(found, exam, command, machine))
    if exam:
        draw(folder / "quantization.png", found, exam)


def read(result: Mapping[str, Any]) -> tuple[Texts, Exams]:
    """Return what quantization.json holds."""
    texts = msgspec.convert(result["texts"], dict[str, dict[str, Divergence]])
    return texts, msgspec.convert(result["examination"], dict[str, Exam])


def draw(path: Path, found: Texts, exam: Exams) -> None:
    """Draw right answers by category, and the divergences from float32, a colour a scheme."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 6), width_ratios=(3, 2))
    schemes = [name for name in exam if name != REFERENCE]
    rows = list(exam[BASE].questions)
    for number, scheme in enumerate(schemes):
        places = [y + 0.25 * (number - (len(schemes) - 1) / 2) for y in range(len(rows))]
        left.plot([100 * exam[scheme].right[row] for row in rows], places, "o", markersize=4, label=scheme)
        heights = [y + 0.25 * (number - (len(schemes) - 1) / 2) for y in range(len(found))]
        right.barh(heights, [each[scheme].kl for each in found.values()], height=0.22, label=scheme)
    left.set_yticks(range(len(rows)), [f"{row} ({exam[BASE].questions[row]})" for row in rows], fontsize=8)
    left.set_xlabel("right answers of the examination, %")
    left.invert_yaxis()
    left.grid(axis="y", alpha=0.3)
    left.legend()
    right.set_yticks(range(len(found)), [name.replace(", ", ",\n") for name in found], fontsize=8)
    right.set_xscale("log")
    right.set_xlabel("divergence from float32, nats a token")
    right.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
