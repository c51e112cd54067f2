"""What is special to a device is asked of `unifiedserve/device`, and known nowhere else."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "unifiedserve"
SPECIAL = re.compile(r"is_cuda|device\.type|mkldnn|cpu_features|torch\.cuda|import triton")


def test_nothing_else_asks_what_the_device_is() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if not file.is_relative_to(PACKAGE / "device")]
    assert [str(file) for file in files if SPECIAL.search(file.read_text())] == []
    assert len(files) > 100
