"""Makes references with transformers on the processor."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu import family_cases
from bench.gpu.cargo import MODELS
from bench.gpu.family_cases import FILE, TOKENS


def write(out: Path, scratch: Path, only: Sequence[str] | None) -> int:
    """Write the references of all or some families; return the file's size in bytes."""
    torch.set_num_threads(1)  # tiny models gain nothing from more
    family_cases.import_tests()
    arrays: dict[str, Any] = {}
    for family in only or family_cases.families():
        arrays |= {f"{family}/{name}": array for name, array in _of_family(family, scratch).items()}
        print(family, flush=True)
    np.savez_compressed(out / FILE, **arrays)
    (out / MODELS).write_text("\n".join(_models()))
    return (out / FILE).stat().st_size


def _models() -> list[str]:
    """Return the folders of transformers' models that have been imported."""
    return sorted({name.split(".")[2] for name in sys.modules if name.startswith("transformers.models.")})


def _of_family(family: str, scratch: Path) -> dict[str, Any]:
    reference = importlib.import_module("reference")

    checkpoint = family_cases.checkpoint(family, scratch)
    theirs = reference.load(checkpoint)
    arrays: dict[str, Any] = {"digest": np.array(family_cases.digest(checkpoint))}
    cases = family_cases.cases(family)
    for name, case in cases.items():
        inputs = theirs.inputs(case)
        with torch.inference_mode():
            logits = theirs.model(**inputs).logits[0, -1]
        arrays[f"{name}/prompt"] = inputs["input_ids"][0].numpy().astype(np.int32)
        arrays[f"{name}/tokens"] = np.array(theirs.generate(case, TOKENS), np.int32)
        arrays[f"{name}/logits"] = logits.float().numpy()
    theirs.model.bfloat16()
    for name, case in cases.items():
        inputs = theirs.inputs(case)
        half = {key: value.bfloat16() if value.is_floating_point() else value for key, value in inputs.items()}
        with torch.inference_mode():
            rounded = theirs.model(**half).logits[0, -1].float().numpy()
        arrays[f"{name}/bf16_off"] = np.array(family_cases.distance(rounded, arrays[f"{name}/logits"]))
    return arrays
