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
import sys
import torch
{use}
"""

OF_ANOTHER_VERSION = """
import sys
from unifiedserve.models import deferred_graphs
deferred_graphs._VERSION = "1."
from unifiedserve.models.deferred_torch import import_torch

import_torch()
import torch
print("torch.fx.graph" in sys.modules, torch.Generator().manual_seed(7).initial_seed(), torch.vmap is torch.func.vmap)
"""


DEFERRED = """
import sys
from unifiedserve.models.deferred_torch import defer_torch, is_torch_deferred

defer_torch()
import torch
before = torch
assert is_torch_deferred() and "torch.nn" not in sys.modules
{use}
assert not is_torch_deferred()
"""


def _run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "from unifiedserve.worker import zygote, process; process.prepare_interpreter()",
    ],
    ids=["zygote"],
)
def test_no_worker_imports_them(imports: str) -> None:
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
        ("print(torch.vmap(lambda x: 2 * x)(torch.ones(2)).tolist())", "[2.0, 2.0]"),
        ("early = torch.vmap; early(abs)(torch.ones(1)); print(torch.vmap is torch.func.vmap is not early)", "True"),
        ("print(torch.func.grad(lambda x: x * x)(torch.tensor(3.0)).item())", "6.0"),
        ("print(torch.fx.symbolic_trace(torch.nn.ReLU())(-torch.ones(1)).tolist())", "[0.0]"),
        (
            "from torch.fx.experimental.proxy_tensor import make_fx\n"
            "print(make_fx(torch.abs)(-torch.ones(1))(-torch.ones(1)).tolist())",
            "[1.0]",
        ),
        ("import torch.fx as f, torch.fx.graph as g; print(f.Graph is torch.fx.Graph is g.Graph)", "True"),
        ("import torch.nn.attention.flex_attention as f; print(f.BlockMask.__name__)", "BlockMask"),
        ("print(torch.cond(torch.tensor(True), lambda: torch.ones(1), lambda: torch.zeros(1)).tolist())", "[1.0]"),
        ("print(torch.distributions.Normal(0.0, 1.0).mean.item())", "0.0"),
        ("print(torch.distributions.constraints.positive.check(torch.ones(1)).item())", "True"),
        ("print(torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]).size(0))", "2"),
        (
            "with torch.device('meta'):\n"
            "    torch.ones(1)\n"
            "    print(torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged).device)",
            "meta",
        ),
        (
            "from torch.utils.checkpoint import checkpoint\n"
            "print(checkpoint(torch.relu, -torch.ones(1), use_reentrant=False).tolist())",
            "[0.0]",
        ),
        ("print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).tolist())", "[2.0]"),
        ("import torch._native as n; print(n is torch._native, 'torch.fx.graph' in sys.modules)", "True False"),
        ("import torchgen.model as m; print(m.FunctionSchema.parse('f(Tensor x) -> Tensor').name)", "f"),
        (
            "import threading\n"
            "found = []\n"
            "threads = [threading.Thread(target=lambda: found.append(torch.fx.Graph)) for _ in range(8)]\n"
            "[thread.start() for thread in threads]\n"
            "[thread.join() for thread in threads]\n"
            "print(len(found), len(set(found)))",
            "8 1",
        ),
        (
            "def f(x: torch.Tensor) -> torch.Tensor: return x.clone()\n"
            "torch.library.custom_op('tests::f', f, mutates_args=()).register_fake(torch.empty_like)\n"
            "print(torch.ops.tests.f(torch.ones(1)).tolist())",
            "[1.0]",
        ),
    ],
    ids=[
        "optimiser",
        "generator",
        "loader",
        "quantised",
        "exported",
        "fake tensors",
        "vmap",
        "vmap that was taken before",
        "gradient",
        "traced",
        "traced operators",
        "name of a graph",
        "flex attention",
        "condition",
        "distribution",
        "constraint",
        "nested",
        "nested on a device",
        "recomputed",
        "compiled",
        "kernels for GPUs",
        "code generator",
        "threads",
        "operator",
    ],
)
def test_a_part_works_once_it_is_used(use: str, printed: str) -> None:
    assert _run(USED.format(use=use)) == printed


def test_graphs_of_a_version_that_is_not_known_are_imported() -> None:
    assert _run(OF_ANOTHER_VERSION) == "True 7 True"


def test_the_server_imports_no_torch_for_any_family() -> None:
    """It would be a second of its start, and a tenth of a GiB."""
    program = (
        "from unifiedserve.models.deferred_torch import defer_torch, is_torch_deferred\n"
        "defer_torch()\n"
        "import unifiedserve.server.daemon\n"
        "from unifiedserve.models.hub import load_transformers\n"
        "from unifiedserve.models.registry import FAMILIES, family_class\n"
        "load_transformers()\n"
        "names = [family_class(family.processor).__name__ for family in FAMILIES.values()]\n"
        "print(len(names) > 20, is_torch_deferred())"
    )
    assert _run(program) == "True True"


@pytest.mark.parametrize(
    ("use", "printed"),
    [
        ("print(torch.ones(2).tolist())", "[1.0, 1.0]"),
        ("from torch import Tensor; print(Tensor is torch.Tensor)", "True"),
        (
            "import torch.nn as nn; print(nn is torch.nn is before.nn is sys.modules['torch.nn'], nn.__spec__.name)",
            "True torch.nn",
        ),
        ("from torch.nn import functional; print(functional is before.nn.functional)", "True"),
        ("import torch.utils.data.dataloader as d; print(before.utils.data.DataLoader is d.DataLoader)", "True"),
        (
            "from concurrent.futures import ThreadPoolExecutor as Pool\n"
            "with Pool(8) as pool: print(len(set(pool.map(lambda _: before.Tensor, range(8)))))",
            "1",
        ),
    ],
    ids=["attribute", "name", "part", "name of a part", "part that is left out", "threads"],
)
def test_torch_is_imported_once_when_it_is_used(use: str, printed: str) -> None:
    assert _run(DEFERRED.format(use=use)) == printed
