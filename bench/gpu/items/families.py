"""Greedy float32 answers of every family, and the logits behind them, beside the references that were carried."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from bench.gpu import family_cases, machine
from bench.gpu.family_cases import TOKENS, Arrays
from bench.gpu.figures import Figures, Skip
from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.device import Device, open_device
from unifiedserve.errors import ConfigError
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.registry import load_processor

TOLERANCE = 1.5  # how much further off bfloat16 logits may be than those of transformers on a processor

Row = dict[str, Any]


def tokens(figures: Figures, device: str) -> None:
    """Compare greedy float32 tokens, TF32 off; raises RuntimeError if an answer is another one."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    _compare(figures, device, torch.float32, lambda row: not row["other_answers"])


def bf16_logits(figures: Figures, device: str) -> None:
    """Compare the logits behind each prompt in bfloat16; raises RuntimeError if some are too far off for TOLERANCE."""
    _compare(figures, device, torch.bfloat16, lambda row: row["logits_off"] <= TOLERANCE * row["transformers_bf16_off"])


def _compare(figures: Figures, device: str, dtype: torch.dtype, is_right: Callable[[Row], bool]) -> None:
    torch.set_num_threads(1)  # tiny models gain nothing from more
    family_cases.import_tests()
    references = family_cases.load(Path(os.environ[machine.CARRIED_VARIABLE], "references"))
    place = open_device(cast(DeviceName, device), EngineConfig())
    rows, wrong = list[Row](), []
    for family in dict.fromkeys(name.split("/")[0] for name in references):
        try:
            row = _compared(family, references, dtype, place)
        except pytest.skip.Exception as reason:  # a package is not there with which its checkpoint is made
            row = {"left_out": str(reason)}
        except ConfigError as refusal:  # of a torch too old for it
            row = {"left_out": str(refusal)}
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {error}"[:300]}
        if "left_out" not in row and ("error" in row or not is_right(row)):
            wrong.append(family)
        rows.append({"family": family, **row})
        figures.add(families=rows)
    figures.add(compared=sum("logits_off" in row for row in rows), wrong=len(wrong))
    if wrong:
        raise RuntimeError(f"not as the references: {', '.join(wrong)}")
    if all("left_out" in row for row in rows):
        raise Skip(f"every family is left out: {rows[0]['left_out']}")


def _compared(family: str, references: Arrays, dtype: torch.dtype, device: Device) -> Row:
    checkpoint = family_cases.checkpoint(family, Path("checkpoints"))
    if family_cases.digest(checkpoint) != str(references[f"{family}/digest"]):
        return {"left_out": "its checkpoint has other weights here"}
    tests, model_loop = family_cases.import_tests(), importlib.import_module("model_loop")
    side = _Side(load_processor(checkpoint), model_loop.make_adapter(checkpoint, dtype, device))
    logits = _remember_logits(side.adapter)
    loop = model_loop.Loop(side.adapter)
    others, off, theirs = list[str](), list[float](), list[float]()
    try:
        for name, case in family_cases.cases(family).items():
            prompt, expected, exact = (references[f"{family}/{name}/{what}"] for what in ("prompt", "tokens", "logits"))
            logits.clear()
            request = tests.prepare(side, case)
            (answer,) = loop.generate([request], TOKENS, eos=side.ours.eos_token_ids)
            loop.preempt(request)
            if list(request.prompt.token_ids) != prompt.tolist():
                raise RuntimeError(f"the prompt of {name!r} has other tokens here")
            if answer != expected.tolist():
                others.append(name)
            off.append(family_cases.distance(logits[0].numpy(), exact))
            theirs.append(float(references[f"{family}/{name}/bf16_off"]))
    finally:
        loop.close()
    return {"logits_off": max(off), "transformers_bf16_off": max(theirs), "other_answers": ", ".join(others)}


class _Side:
    """What the tests' `prepare` looks at."""

    def __init__(self, ours: Any, adapter: LanguageAdapter) -> None:
        self.ours, self.adapter = ours, adapter


def _remember_logits(adapter: LanguageAdapter) -> list[Tensor]:
    """Return a list to which the adapter adds each step's float32 logits [vocab] from now on, in host memory."""
    remembered: list[Tensor] = []
    compute = adapter.logits

    def remember(hidden: Tensor) -> Tensor:
        logits = compute(hidden)
        remembered.append(logits[-1].float().cpu().clone())
        return logits

    adapter.logits = remember  # type: ignore[method-assign]
    return remembered
