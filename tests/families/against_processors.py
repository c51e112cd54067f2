"""Every field of every family's processors with many values: are its pixels and tokens those of transformers?

    python tests/families/against_processors.py OUT [--family llava ...] [--pairs 200] [--seed 0]

OUT/report.md and OUT/report.json have a row for each family, field and value. `--pairs` adds so many random variants of
several fields at once. The exit status is 1 if any gives other pixels, other tokens or an error that says nothing.
"""

import argparse
import collections
import json
import logging
import random
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
sys.path[:0] = map(str, [REPOSITORY, TESTS / "suite", TESTS / "checkpoints"])

from every_family import FAMILIES  # noqa: E402
from processor_check import Verdict, check  # noqa: E402
from processor_variants import OWN_RULES, Variant, fields_of, single_variants, write_variant  # noqa: E402


class Row(NamedTuple):
    variant: Variant
    verdict: Verdict


def random_variants(families: Sequence[str], count: int, seed: int) -> list[Variant]:
    """Draw variants of two to four fields of one processor."""
    draw = random.Random(seed)
    variants = []
    for _ in range(count):
        family = draw.choice(families)
        section, fields = draw.choice(list(fields_of(family).items()))
        names = draw.sample(sorted(fields), draw.randint(2, 4))
        variants.append(Variant(family, section, {name: draw.choice(fields[name]) for name in names}))
    return variants


def run(variants: Iterable[Variant], scratch: Path) -> list[Row]:
    rows = []
    for variant in variants:
        checkpoint = scratch / variant.family
        if not checkpoint.is_dir():
            FAMILIES[variant.family].make(checkpoint)
        write_variant(variant, checkpoint, scratch / "variant")
        outcome, detail = check(scratch / "variant", FAMILIES[variant.family].media)
        rows.append(Row(variant, Verdict(outcome, detail.replace(f"{scratch / 'variant'}/", ""))))
        if not rows[-1].verdict.allowed:
            print(f"{variant}: {rows[-1].verdict.outcome}: {rows[-1].verdict.detail}", flush=True)
    return rows


def write_report(rows: Sequence[Row], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    records = [{**row.variant._asdict(), **row.verdict._asdict()} for row in rows]
    (out / "report.json").write_text(json.dumps(records, indent=1) + "\n")
    counts = collections.Counter((row.variant.family, row.verdict.outcome) for row in rows)
    outcomes = sorted({row.verdict.outcome for row in rows})
    lines = ["| family | " + " | ".join(outcomes) + " |", "| --- |" + " --- |" * len(outcomes)]
    for family in dict.fromkeys(row.variant.family for row in rows):
        lines.append(f"| {family} | " + " | ".join(str(counts[family, outcome]) for outcome in outcomes) + " |")
    lines += ["", "| family | processor | fields | outcome | detail |", "| --- | --- | --- | --- | --- |"]
    for (family, section, fields), (outcome, detail) in rows:
        told = detail.replace("|", "\\|").splitlines()
        lines.append(f"| {family} | {section} | `{json.dumps(fields)}` | {outcome} | {told[0] if told else ''} |")
    (out / "report.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the report")
    parser.add_argument("--family", nargs="+", default=OWN_RULES, choices=sorted(FAMILIES), help="default: all")
    parser.add_argument("--pairs", type=int, default=0, help="random variants of several fields")
    parser.add_argument("--seed", type=int, default=0, help="of the random variants")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    variants = [variant for family in options.family for variant in single_variants(family)]
    variants += random_variants(options.family, options.pairs, options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        rows = run(variants, Path(scratch))
    write_report(rows, options.out)
    counts = collections.Counter(row.verdict.outcome for row in rows)
    print(f"{len(rows)} variants: {dict(counts)}; see {options.out / 'report.md'}")
    return int(any(not row.verdict.allowed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
