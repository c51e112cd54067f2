"""Greedy float32 answers of every family, and the logits behind them, beside the references that were carried."""

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu import family_cases, machine
from bench.gpu.family_cases import TOKENS, Arrays
from bench.gpu.figures import Figures, Skip


def on_cpu(figures: Figures) -> None:
    """Compare on this machine's processor: whether the references hold with its packages, before a GPU is blamed."""
    compare(figures, torch.float32)


def compare(figures: Figures, dtype: torch.dtype) -> None:
    """Compare all families of the references; raises RuntimeError if an answer is another one."""
    torch.set_num_threads(1)  # tiny models gain nothing from more
    torch.set_num_threads(1)  # tiny models gain nothing from more
    family_cases.import_tests()
    references = family_cases.load(Path(os.environ[machine.CARRIED_VARIABLE], "references"))
    rows: list[dict[str, Any]] = []
    for family in dict.fromkeys(name.split("/")[0] for name in references):
        try:
            rows.append({"family": family, **_compared(family, references, dtype)})
        except Exception as error:
            rows.append({"family": family, "same": False, "error": f"{type(error).__name__}: {error}"[:300]})
        figures.add(families=rows)
    other = [row["family"] for row in rows if row.get("same") is False]
    figures.add(same=sum(row.get("same") is True for row in rows), other=len(other))
    if other:
        raise RuntimeError(f"other answers than the references': {', '.join(other)}")
    if all(row["same"] is None for row in rows):
        raise Skip("no checkpoint could be made as where the references were")


def _compared(family: str, references: Arrays, dtype: torch.dtype) -> dict[str, Any]:
    checkpoint = family_cases.checkpoint(family, Path("checkpoints"))
    if family_cases.digest(checkpoint) != str(references[f"{family}/digest"]):
        return {"same": None, "error": "its checkpoint has other weights here"}
    tests, loops = family_cases.import_tests(), importlib.import_module("model_loop")
    processor = importlib.import_module("unifiedserve.models.registry").load_processor(checkpoint)
    adapter = loops.make_adapter(checkpoint, dtype)
    side = _Side(processor, adapter)
    loop = loops.Loop(adapter)
    differing, worst = [], 0.0
    try:
        for name, case in family_cases.cases(family).items():
            request = tests.prepare(side, case)
            known = {what: references[f"{family}/{name}/{what}"] for what in ("prompt", "tokens", "logits")}
            (tokens,) = loop.generate([request], TOKENS, eos=processor.eos_token_ids)
            loop.preempt(request)
            if list(request.prompt.token_ids) != known["prompt"].tolist() or tokens != known["tokens"].tolist():
                differing.append(name)
            logits = tests.prompt_logits(adapter, tests.prepare(side, case), 1)[-1].float().numpy()
            worst = max(worst, float(np.linalg.norm(logits - known["logits"]) / np.linalg.norm(known["logits"])))
    finally:
        loop.close()
    return {"same": not differing, "logits_off": worst, "error": ", ".join(differing)}


class _Side:
    """What the tests' `prepare` looks at."""

    def __init__(self, ours: Any, adapter: Any) -> None:
        self.ours, self.adapter = ours, adapter
