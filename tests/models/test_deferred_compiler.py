"""Imports of `transformers` leave torch's compiler out, which works all the same when something is compiled."""

import subprocess
import sys

COMPILES = """
import sys
from unifiedserve.models.hub import load_transformers

load_transformers().PreTrainedModel
assert "sympy" not in sys.modules
import torch
from torch._dynamo import config
print(torch.compile(lambda x: 2 * x + 1, backend="eager")(torch.ones(2)).tolist())
"""


def test_a_model_can_be_compiled_where_the_compiler_was_left_out() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[3.0, 3.0]\n", 0), done.stderr
