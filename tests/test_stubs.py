"""The type stubs of the C++ cores say what the bindings say."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_stubs_are_as_generated() -> None:
    pytest.importorskip("pybind11_stubgen")
    checked = subprocess.run([sys.executable, "tools/stubs", "--check"], cwd=REPOSITORY, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
