"""Launch each Triton kernel on ragged batches whose unused pages hold NaN, and compare with plain torch."""

import importlib
import sys

import torch
from torch import Tensor

from bench.gpu import machine
from unifiedserve.attention import AttentionRules
from unifiedserve.device.triton.add_rms_norm import add_rms_norm
from unifiedserve.device.triton.attention_plan import PART_KEYS, AttentionPlan
from unifiedserve.device.triton.paged_attention import paged_attention
from unifiedserve.device.triton.silu_mul import silu_mul
from unifiedserve.device.triton.store_kv import store_kv

LENGTHS = [(2 * PART_KEYS + 3, 1), (0, 70), (PART_KEYS - 1, 1), (33, 5)]
LIMITED = [False, True, False, False]
TOLERANCE = {torch.bfloat16: 2e-2, torch.float32: 2e-5}
HIDDEN = 3584


def main(device: str = "cuda") -> None:
    """Raise AssertionError if a result is not plain torch's."""
    sys.path.append(str(machine.ROOT / "tests/device"))
    batches = importlib.import_module("paged_batches")

    for dtype, head_dim, window in ((torch.bfloat16, 128, None), (torch.bfloat16, 80, 100), (torch.float32, 64, None)):
        sizes, random = batches.Sizes(14, 2, head_dim, 16), torch.Generator().manual_seed(0)
        case = batches.random_case(LENGTHS, LIMITED, sizes, dtype, random)
        plan = AttentionPlan.of_batch(case.batch(), 7, batches.uploading_to(torch.device(device)))
        q, keys, values = (tensor.to(device) for tensor in (case.q, case.keys, case.values))
        out = paged_attention(q, keys, values, plan, head_dim**-0.5, AttentionRules(window))
        close(out, case.expected(head_dim**-0.5, AttentionRules(window)), dtype)
        tokens = len(case.q)
        rotation = torch.ones(tokens, head_dim, device=device)
        qkv = torch.ones(tokens, 18 * head_dim, dtype=dtype, device=device)
        store_kv(qkv, rotation, torch.zeros_like(rotation), keys, values, case.batch().slots.to(device))
        close(keys.flatten(0, 1)[case.batch().slots.to(device)], torch.ones(tokens, 2, head_dim), dtype)
    residual, delta = (torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    weight = torch.ones(HIDDEN, dtype=torch.bfloat16, device=device)
    normed = add_rms_norm(residual.to(device), delta.to(device, torch.bfloat16), weight, 1e-6)
    close(
        normed, torch.nn.functional.rms_norm(residual + delta.bfloat16().float(), (HIDDEN,), eps=1e-6), torch.bfloat16
    )
    gate_up = torch.randn(5, 2 * 1500, generator=torch.Generator().manual_seed(2)).bfloat16()
    gate, up = gate_up.float().chunk(2, -1)
    close(silu_mul(gate_up.to(device)), torch.nn.functional.silu(gate) * up, torch.bfloat16)


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(found.float().cpu(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


if __name__ == "__main__":
    main(*sys.argv[1:])
