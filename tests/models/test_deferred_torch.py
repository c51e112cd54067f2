"""Server processes leave out parts of torch, which work all the same where something uses them."""

import subprocess
import sys

import pytest

LEFT_OUT = """
import sys
from unifiedserve.models.deferred_torch import PARTS, import_torch

import_torch()
{imports}
print([part for part in (*PARTS, "sympy") if part in sys.modules])
"""

USED = """
from unifiedserve.models.deferred_torch import import_torch

import_torch()
import torch
{use}
"""


def _run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import unifiedserve.server.daemon",
        "from unifiedserve.worker import zygote, process; process.prepare_interpreter()",
    ],
    ids=["engine", "zygote"],
)
def test_no_server_process_imports_them(imports: str) -> None:
    assert _run(LEFT_OUT.format(imports=imports)) == "[]"


@pytest.mark.parametrize(
    ("use", "printed"),
    [
        ("print(torch.optim.SGD.__name__)", "SGD"),
        ("print(torch.Generator().manual_seed(7).initial_seed())", "7"),
        ("import torch.utils.data.dataloader as d; print(torch.utils.data.DataLoader is d.DataLoader)", "True"),
        ("import torch.ao.nn.quantized as q; print(torch.nn.quantized.Linear is q.Linear)", "True"),
        (
            "print(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).module()(-torch.ones(2)).tolist())",
            "[0.0, 0.0]",
        ),
        (
            "from torch._subclasses.fake_tensor import FakeTensorMode\n"
            "with FakeTensorMode(): print(list(torch.nn.functional.layer_norm(torch.ones(2, 3), (3,)).shape))",
            "[2, 3]",
        ),
    ],
    ids=["optimiser", "generator", "loader", "quantised", "exported", "fake tensors"],
)
def test_a_part_works_once_it_is_used(use: str, printed: str) -> None:
    assert _run(USED.format(use=use)) == printed
