"""Compile what the launchers launch, without a GPU: prints JSON, a line a kernel and compute capability.

Run in a process of its own, in which Triton's interpreter is not chosen, with an empty cache. Arguments are a
capability and a block's bytes of shared memory each, 90:232448, and a file of what is known: the output of an earlier
run. A kernel whose source, options and Triton are those of a line there is not compiled again. After a kernel has
changed:

TRITON_DUMP_PTXAS_LOG=1 TRITON_CACHE_DIR=$(mktemp -d) PYTHONPATH=.:tests/device python tests/device/compile_kernels.py \
    80:166912 89:101376 90:232448 100:232448 > compiled.jsonl && mv compiled.jsonl tests/device/
"""

import contextlib
import hashlib
import io
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import triton
from paged_batches import Sizes, random_case, uploading_to
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from unifiedserve.attention import AttentionRules
from unifiedserve.device.triton import paged_attention as paged
from unifiedserve.device.triton.add_rms_norm import add_rms_norm
from unifiedserve.device.triton.attention_plan import PART_KEYS, AttentionPlan
from unifiedserve.device.triton.linear import linear
from unifiedserve.device.triton.rotate_heads import rotate_heads
from unifiedserve.device.triton.silu_mul import silu_mul
from unifiedserve.device.triton.store_kv import store_kv

CPU = torch.device("cpu")
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
#: what Gemma 2, gpt-oss and Llama 4 have, by their heads' sizes
RULES = {256: AttentionRules(cap=50.0), 64: AttentionRules(sinks=torch.zeros(14)), 128: AttentionRules(chunk=8192)}
ALIGNED = [["tt.divisibility", 16]]


class Launches:
    """Stands for the launch of a kernel: keeps its sources instead, as Triton specialises them."""

    def __init__(self) -> None:
        self.variant = ""
        self._known: set[str] = set()
        self.sources: list[tuple[str, ASTSource, dict[str, int]]] = []

    def run(self, kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        values = dict(zip(kernel.arg_names, args, strict=False))
        values |= {name: options.pop(name) for name in kernel.arg_names if name in options}
        signature, constants, attributes = {}, {}, {}
        for index, (parameter, (name, value)) in enumerate(zip(kernel.params, values.items(), strict=True)):
            is_one = isinstance(value, int) and value == 1 and not parameter.do_not_specialize
            if parameter.is_constexpr or value is None or is_one:
                signature[name], constants[name] = "constexpr", value
                continue
            signature[name] = type_of(value)
            if parameter.do_not_specialize:
                continue
            if (value.data_ptr() if isinstance(value, torch.Tensor) else value) % 16 == 0:
                attributes[(index,)] = ALIGNED
        source = ASTSource(kernel, signature, constants, attributes)
        if (known := f"{source.hash()} {options}") not in self._known:  # what is in the cache has no report
            self._known.add(known)
            self.sources.append((self.variant, source, options))


def type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32" if abs(value) < 1 << 31 else "i64"


def launch_all(launches: Launches) -> None:
    for dtype, head_dim in ((torch.bfloat16, 64), (torch.bfloat16, 128), (torch.bfloat16, 256), (torch.float32, 128)):
        name = launches.variant = f"{str(dtype).removeprefix('torch.')}, head_dim {head_dim}"
        sizes = Sizes(14, 2, head_dim, 16)
        case = random_case([(2 * PART_KEYS, 1), (0, 20)], [False, False], sizes, dtype, torch.Generator())
        rows = paged.tile_rows(dtype, head_dim, paged.shared_bytes(CPU))
        plan = AttentionPlan.of_batch(case.batch(), 7, uploading_to(CPU), rows)
        paged.paged_attention(case.q, case.keys, case.values, plan, 1.0)
        if head_dim <= 128:  # wider heads of no llama-like model would spill
            launches.variant = f"{name}, in order"
            in_order = AttentionPlan.of_batch(case.batch(), 7, uploading_to(CPU), in_order=True)
            paged.paged_attention(case.q, case.keys, case.values, in_order, 1.0)
        if dtype == torch.bfloat16:
            launches.variant = f"{name}, of another model"
            paged.paged_attention(case.q, case.keys, case.values, plan, 1.0, rules=RULES[head_dim])
        launches.variant = name
        qkv, rotation = torch.zeros(1, 18 * head_dim, dtype=dtype), torch.zeros(1, head_dim)
        weight = torch.ones(head_dim, dtype=dtype)
        store_kv(qkv, rotation, rotation, case.keys, case.values, case.batch().slots[:1], weight, weight, 1e-6)
    launches.variant = "bfloat16, hidden 3584"
    residual, delta = torch.zeros(1, 3584), torch.zeros(1, 3584, dtype=torch.bfloat16)
    add_rms_norm(residual, delta, delta[0], 1e-6)
    launches.variant = "bfloat16, intermediate 18944"
    silu_mul(torch.zeros(1, 2 * 18944, dtype=torch.bfloat16))
    for dtype, head_dim in ((torch.bfloat16, 80), (torch.bfloat16, 64), (torch.float32, 80)):
        launches.variant = f"{str(dtype).removeprefix('torch.')}, head_dim {head_dim}"
        angles = torch.zeros(1, head_dim // 2)
        rotate_heads(torch.zeros(1, 48, head_dim, dtype=dtype)[:, :32], angles, angles)
    for dtype, inputs, outputs in (
        (torch.bfloat16, 3584, 4608),
        (torch.bfloat16, 1176, 1280),
        (torch.float32, 3584, 4608),
    ):
        launches.variant = f"{str(dtype).removeprefix('torch.')}, {inputs} by {outputs}"
        weight = torch.zeros(outputs, inputs, dtype=dtype)
        linear(torch.zeros(1, inputs, dtype=dtype), weight, weight[:, 0].contiguous())
    launches.variant = "bfloat16, intermediate 3420 of 3424"
    silu_mul(torch.zeros(1, 2 * 3420, dtype=torch.bfloat16), 3424)


def key_of(source: ASTSource, options: dict[str, int], capability: int) -> str:
    """Return what tells kernels apart whose code may differ."""
    parts = triton.__version__, source.hash(), sorted(options.items()), capability
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def compiled(launches: Launches, capability: int, known: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for variant, source, options in launches.sources:
        key = key_of(source, options, capability)
        if key in known:
            yield known[key]
            continue
        log, start = io.StringIO(), time.perf_counter()
        with contextlib.redirect_stdout(log):  # TRITON_DUMP_PTXAS_LOG has ptxas' own report printed there
            kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        yield {
            "key": key,
            "kernel": source.name,
            "variant": variant,
            "capability": capability,
            "cubin_bytes": len(kernel.asm["cubin"]),
            "shared_bytes": kernel.metadata.shared,
            "registers": int(re.findall(r"Used (\d+) registers", log.getvalue())[0]),
            "spill_bytes": int(re.findall(r"(\d+) bytes spill stores", log.getvalue())[0]),
            "seconds": round(time.perf_counter() - start, 2),
        }


if __name__ == "__main__":
    sizes = [argument for argument in sys.argv[1:] if ":" in argument]
    files = [Path(argument) for argument in sys.argv[1:] if ":" not in argument]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    known = {line["key"]: line for line in lines}
    for capability, shared in (map(int, argument.split(":")) for argument in sizes):
        recorded = Launches()
        JITFunction.run = lambda kernel, *args, to=recorded, **options: to.run(kernel, *args, **options)
        paged.shared_bytes = lambda device, bytes_there=shared: bytes_there
        launch_all(recorded)
        for line in compiled(recorded, capability, known):
            print(json.dumps(line), flush=True)
