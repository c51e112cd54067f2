"""Each Triton kernel beside the same in torch, and beside the copy bandwidth measured in the same run.

Decode's attention is measured by three plans: the host's, one with parts twice as long, and that of a recorded step for
contexts four times as long, most of whose programs have nothing to do.

Shapes are those of a 7B language model: hidden 3584, 28 query heads, 4 of keys, 128 wide; pages of 16 tokens, bfloat16.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from bench.gpu.figures import Figures
from bench.gpu.row_product import row_product
from bench.gpu.stopwatch import copy_bandwidth, issue_seconds, seconds
from unifiedserve.attention.base import RaggedBatch, Span
from unifiedserve.device.triton.add_rms_norm import add_rms_norm
from unifiedserve.device.triton.attention_plan import PART_KEYS, AttentionPlan
from unifiedserve.device.triton.paged_attention import paged_attention, shared_bytes, tile_rows
from unifiedserve.device.triton.silu_mul import silu_mul
from unifiedserve.device.triton.store_kv import store_kv

HIDDEN, INTERMEDIATE, Q_HEADS, KV_HEADS, HEAD_DIM, PAGE = 3584, 18944, 28, 4, 128, 16
GROUPS, SCALE = Q_HEADS // KV_HEADS, HEAD_DIM**-0.5
CONTEXT = 4096
DTYPE, CUDA = torch.bfloat16, torch.device("cuda")
#: so much is read in turn that nothing of it is still in the cache when its turn comes again
WORKING_SET = 512 << 20


class Report:
    """Rows of times; each is told as soon as it is measured."""

    def __init__(self, figures: Figures) -> None:
        self._figures, self._rows = figures, list[dict[str, Any]]()
        self._bandwidth = copy_bandwidth()
        figures.add(copy_gb_s=self._bandwidth / 1e9)

    def row(
        self,
        kernel: str,
        case: str,
        ours: Callable[[int], object],
        theirs: Callable[[int], object],
        moved: int,
        flops: int = 0,
        error: float | None = None,
    ) -> None:
        """Measure a kernel and its reference; `moved` are the bytes that cannot but be read and written."""
        time, reference = seconds(ours), seconds(theirs)
        row = {
            "kernel": kernel,
            "case": case,
            "us": 1e6 * time,
            "torch_us": 1e6 * reference,
            "issue_us": 1e6 * issue_seconds(ours),
            "torch_issue_us": 1e6 * issue_seconds(theirs),
            "gb_s": moved / time / 1e9,
            "of_floor": time / (moved / self._bandwidth),
            "tflop_s": flops / time / 1e12 if flops else None,
            "largest_error": error,
        }
        self._rows.append(row)
        self._figures.add(kernels=self._rows)


def measure(figures: Figures) -> None:
    torch.manual_seed(0)
    report = Report(figures)
    attention(report, "decode 1 × 4k", 1, 1)
    attention(report, "decode 64 × 4k", 64, 1)
    attention(report, "prefill 512 after 4k", 1, 512)
    for tokens in (1, 64, 512):
        pointwise(report, tokens)
        product(report, "gate and up", tokens, HIDDEN, 2 * INTERMEDIATE)
        product(report, "down", tokens, INTERMEDIATE, HIDDEN)


def attention(report: Report, case: str, sequences: int, new: int) -> None:
    """Measure paged attention of so many sequences of CONTEXT tokens, with new ones each."""
    length = CONTEXT + new
    count = -(-length // PAGE)
    layer_bytes = 2 * sequences * length * KV_HEADS * HEAD_DIM * DTYPE.itemsize
    layers = max(2, -(-WORKING_SET // layer_bytes))
    cache = torch.randn(sequences * count, layers, 2, PAGE, KV_HEADS, HEAD_DIM, dtype=DTYPE, device=CUDA)
    tables = torch.randperm(sequences * count).view(sequences, count)
    batch = RaggedBatch.build([Span(table, CONTEXT, length) for table in tables.tolist()], PAGE)
    q = torch.randn(sequences * new, Q_HEADS, HEAD_DIM, dtype=DTYPE, device=CUDA)

    def by(plan: AttentionPlan) -> Callable[[int], Tensor]:
        def ours(number: int) -> Tensor:
            layer = cache[:, number % layers]
            return paged_attention(q, layer[:, 0], layer[:, 1], plan, SCALE)

        return ours

    # what torch gets is contiguous: it need not look at a page table
    keys, values = (
        torch.stack(
            [cache[tables.to(CUDA), layer, part].flatten(1, 2)[:, :length].transpose(1, 2) for layer in range(layers)]
        )
        for part in (0, 1)
    )
    queries = q.view(sequences, new, Q_HEADS, HEAD_DIM).transpose(1, 2)
    mask = causal_lower_right(new, length) if new > 1 else None

    def theirs(number: int) -> Tensor:
        layer = number % layers
        return functional.scaled_dot_product_attention(
            queries, keys[layer], values[layer], mask, scale=SCALE, enable_gqa=True
        )

    flops = 4 * sequences * Q_HEADS * HEAD_DIM * (new * CONTEXT + new * (new + 1) // 2)
    for name, plan in plans(batch, tables).items():
        error = float((by(plan)(0) - theirs(0).transpose(1, 2).flatten(0, 1)).abs().max())
        report.row("paged_attention", case + name, by(plan), theirs, layer_bytes + 2 * q.nbytes, flops, error)


def plans(batch: RaggedBatch, tables: Tensor) -> dict[str, AttentionPlan]:
    """Return the plans to measure, by what a row's case says of them; but for decode there is one."""
    found = {"": AttentionPlan.of_batch(batch, GROUPS, upload, tile_rows(DTYPE, HEAD_DIM, shared_bytes(CUDA)))}
    if len(batch.kv_lens) == int(batch.qo_indptr[-1]):
        lengths, rows = upload(batch.kv_lens.int()), upload(tables.int())
        found[f", parts of {2 * PART_KEYS}"] = AttentionPlan.of_batch(batch, GROUPS, upload, part_keys=2 * PART_KEYS)
        found[f", recorded for {4 * CONTEXT}"] = AttentionPlan.of_rows(lengths, rows, 4 * CONTEXT, GROUPS)
    return found


def upload(host: Tensor) -> Tensor:
    return host.to(CUDA)


def pointwise(report: Report, tokens: int) -> None:
    """Measure the kernels between the products, each on buffers in turn."""
    copies = min(64, max(2, WORKING_SET // (tokens * HIDDEN * 6)))
    case = f"{tokens} tokens"

    def random(*shape: int, dtype: torch.dtype = DTYPE) -> Tensor:
        return torch.randn(copies, *shape, dtype=dtype, device=CUDA)

    residual, delta, weight = random(tokens, HIDDEN, dtype=torch.float32), random(tokens, HIDDEN), random(HIDDEN)[0]

    def add_norm(number: int) -> Tensor:
        total = residual[number % copies].add_(delta[number % copies])
        return functional.rms_norm(total, (HIDDEN,), weight.float(), 1e-6).to(DTYPE)

    def fused(number: int) -> Tensor:
        return add_rms_norm(residual[number % copies], delta[number % copies], weight, 1e-6)

    report.row("add_rms_norm", case, fused, add_norm, tokens * HIDDEN * (4 + 4 + 2 + 2))

    gate_up = random(tokens, 2 * INTERMEDIATE)

    def gated(number: int) -> Tensor:
        gate, up = gate_up[number % copies].chunk(2, -1)
        return functional.silu(gate) * up

    report.row(
        "silu_mul",
        case,
        lambda number: silu_mul(gate_up[number % copies]),
        gated,
        3 * tokens * INTERMEDIATE * DTYPE.itemsize,
    )

    width = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM
    qkv = random(tokens, width)
    cosine, sine = (torch.rand(tokens, HEAD_DIM, device=CUDA) for _ in range(2))
    pages = torch.zeros(2, -(-tokens // PAGE) * 4, PAGE, KV_HEADS, HEAD_DIM, dtype=DTYPE, device=CUDA)
    slots = torch.randperm(pages.shape[1] * PAGE, device=CUDA)[:tokens].contiguous()

    def rotated_and_stored(number: int) -> Tensor:
        heads = qkv[number % copies].view(tokens, -1, HEAD_DIM)
        turned, value = heads[:, : Q_HEADS + KV_HEADS].float(), heads[:, Q_HEADS + KV_HEADS :]
        first, second = turned.chunk(2, -1)
        turned = (turned * cosine[:, None] + torch.cat([-second, first], -1) * sine[:, None]).to(DTYPE)
        pages[0].flatten(0, 1).index_copy_(0, slots, turned[:, Q_HEADS:])
        pages[1].flatten(0, 1).index_copy_(0, slots, value)
        return turned[:, :Q_HEADS]

    def stored(number: int) -> Tensor:
        return store_kv(qkv[number % copies], cosine, sine, pages[0], pages[1], slots)

    moved = 2 * qkv[0].nbytes + cosine.nbytes + sine.nbytes
    report.row(
        "store_kv",
        case,
        stored,
        rotated_and_stored,
        moved,
        error=float((stored(0) - rotated_and_stored(0)).abs().max()),
    )


def product(report: Report, name: str, tokens: int, inputs: int, outputs: int) -> None:
    """Measure cuBLAS on one of a layer's large products, as torch calls it, and of one token a kernel beside it."""
    copies = 4
    weights = torch.randn(copies, outputs, inputs, dtype=DTYPE, device=CUDA)
    x = torch.randn(tokens, inputs, dtype=DTYPE, device=CUDA)

    def multiply(number: int) -> Tensor:
        return functional.linear(x, weights[number % copies])

    def by_rows(number: int) -> Tensor:
        return row_product(x, weights[number % copies])

    moved = weights[0].nbytes + x.nbytes + tokens * outputs * DTYPE.itemsize
    flops = 2 * tokens * inputs * outputs
    report.row(f"cuBLAS {name}", f"{tokens} tokens", multiply, multiply, moved, flops)
    if tokens == 1:
        error = float((by_rows(0) - multiply(0)).abs().max())
        report.row(f"row_product {name}", "1 token", by_rows, multiply, moved, flops, error)
