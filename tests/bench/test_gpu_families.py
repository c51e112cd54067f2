"""Comparing families with references goes on where one cannot be made."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import family_cases, machine
from bench.gpu.figures import Figures
from bench.gpu.items import families


def test_a_family_whose_package_is_not_there_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(family: str, *_: Any) -> dict[str, Any]:
        if family == "smolvlm":
            pytest.skip("no num2words")
        return {"other_answers": "", "logits_off": 0.0}

    monkeypatch.setenv(machine.CARRIED_VARIABLE, str(tmp_path))
    monkeypatch.setattr(family_cases, "load", lambda _: {"smolvlm/digest": 0, "llava/digest": 0})
    monkeypatch.setattr(families, "_compared", compared)
    try:
        families.tokens(Figures(tmp_path / "figures"), "cpu")
    except pytest.skip.Exception:
        pytest.fail("the first family's checkpoint that cannot be made ended all")
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    assert (figures["compared"], figures["wrong"]) == (1, 0)
    assert figures["families"][0] == {"family": "smolvlm", "left_out": "no num2words"}
