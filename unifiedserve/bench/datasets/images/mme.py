"""Read MME: fourteen categories of images, two questions each, one to answer with yes and one with no.

Layout: MME_Benchmark_release_version.zip of github.com/BradyFU/Awesome-Multimodal-Large-Language-Models.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from unifiedserve.bench.datasets.choices import YES_NO, with_right_text
from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.rows import read_text
from unifiedserve.bench.datasets.sample import Sample, Unusable
from unifiedserve.bench.requests import Medium

_CATEGORIES = (
    *("existence", "count", "position", "color", "posters", "celebrity", "scene", "landmark", "artwork", "OCR"),
    *("commonsense_reasoning", "numerical_calculation", "text_translation", "code_reasoning"),
)
_QUESTIONS = "questions_answers_YN"  # beside images/ in some categories; else both kinds of files lie together
_HOW_TO_ANSWER = "Please answer yes or no."


def _read(root: Path, annotations: Sequence[Path]) -> Iterator[Sample | Unusable]:
    for path in annotations:
        category = path.relative_to(root).parts[0]
        image = _image(root / category / ("images" if path.parent.name == _QUESTIONS else ""), path.stem)
        lines = [line for line in read_text(path).splitlines() if line.strip()]
        for number, line in enumerate(lines, 1):
            where = f"{path.relative_to(root)}, row {number}"
            question, tab, answer = line.rpartition("\t")
            if not tab:
                yield Unusable(where, "it is no question and answer with a tab between them")
                continue
            sample = Sample(
                id=f"{category}/{path.stem}/{number}",
                where=where,
                question=question.strip().removesuffix(_HOW_TO_ANSWER).rstrip(),
                media=(Medium(kind="image", path=str(image)),),
                task=category,
                choices=YES_NO,
            )
            yield with_right_text(sample, answer)


def _image(folder: Path, stem: str) -> Path:
    kinds = (folder / f"{stem}{suffix}" for suffix in (".jpg", ".png", ".jpeg"))
    return next((path for path in kinds if path.exists()), folder / f"{stem}.jpg")


MME = Loader(
    annotations=tuple(f"{category}/{folder}*.txt" for category in _CATEGORIES for folder in ("", f"{_QUESTIONS}/")),
    roots=(".", "MME_Benchmark", "MME_Benchmark_release_version", "MME_Benchmark_release_version/MME_Benchmark"),
    layout="<category>/<image>.txt beside <image>.jpg, or <category>/questions_answers_YN/ and <category>/images/",
    read=_read,
)
