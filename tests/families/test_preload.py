"""The process that starts workers prepares every family without the rules of torch's compiler."""

import subprocess
import sys

import pytest
from checkpoints import find_checkpoint
from every_family import FAMILIES

PRELOADS = """
import sys
from pathlib import Path
from unifiedserve.models.deferred_torch import import_torch

import_torch()
from unifiedserve.models.adapters import preload

for folder in sys.argv[1:]:
    preload(Path(folder))
print("torch._meta_registrations" in sys.modules)
"""


def test_every_family_is_prepared(tmp_path_factory: pytest.TempPathFactory) -> None:
    folders = [str(find_checkpoint(tmp_path_factory, name)) for name in FAMILIES]
    command = [sys.executable, "-c", PRELOADS, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr
