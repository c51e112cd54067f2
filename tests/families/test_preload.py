"""The process that starts workers prepares every family without what no worker uses of torch and `transformers`."""

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
import torch
from unifiedserve.models.adapters import preload
from unifiedserve.worker.process import prepare_interpreter

prepare_interpreter()

for folder in sys.argv[1:]:
    preload(Path(folder), torch.float32)
of_torch = ("torch._meta_registrations", "torch.fx.graph", "torchgen.model")
print([name for name in (*of_torch, "jinja2", "transformers.generation.logits_process") if name in sys.modules])
"""


def test_every_family_is_prepared(tmp_path_factory: pytest.TempPathFactory) -> None:
    folders = [str(find_checkpoint(tmp_path_factory, name)) for name in FAMILIES]
    command = [sys.executable, "-c", PRELOADS, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
