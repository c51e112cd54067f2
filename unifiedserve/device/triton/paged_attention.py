"""Attend over the pages of the KV cache: prefill chunks and decode in one launch.

The softmax is online (Milakov, Gimelshein, arXiv:1805.02867), over blocks of keys (FlashAttention-2, arXiv:2307.08691);
parts of a long context are merged by their log-sum-exp (Flash-Decoding). Blocks and parts begin at multiples of their
size, so that a token's result has no bit of what else is in its batch.

By a plan in order all tiles have one size, and a program merges the parts of its keys as the other kernel merges those
of several programs: one after another. So a token's result is the same to the bit alone and in a chunk.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules
from unifiedserve.device.triton.attention_plan import TILE_ROWS, AttentionPlan
from unifiedserve.device.triton.launcher import Launcher

#: elements of a block of keys: of 16 bits, two blocks of keys and of values and the queries fit into LEAST_SHARED; of
#: float32, a product's factors into registers
BLOCK_ELEMENTS = {torch.bfloat16: 8192, torch.float16: 8192, torch.float32: 2048}
NO_WINDOW = 1 << 30
LOG2_E = math.log2(math.e)
NO_LIMIT = tl.constexpr((1 << 31) - 1)

#: bytes of shared memory that a program may have, by compute capability, and where it is another (8.6, 8.9, 12.0)
SHARED_BYTES = {(8, 0): 163 << 10, (9, 0): 227 << 10, (10, 0): 227 << 10, (10, 3): 227 << 10}
LEAST_SHARED = 99 << 10
WGMMA_SHARED = 227 << 10  # where products read both factors from it


class Blocks(NamedTuple):
    """Set a program's sizes: keys of a block, warps, and how many stages its loop has.

    If `split`, blocks that every row sees whole go without masks.
    """

    keys: int
    warps: int
    stages: int
    split: bool


@cache
def tile_rows(dtype: torch.dtype, head_dim: int, shared: int = LEAST_SHARED) -> int:
    """Return the rows of plans' tiles, so that a program's sums fit into registers."""
    return 2 * TILE_ROWS if dtype.itemsize == 2 and head_dim <= 128 and shared >= WGMMA_SHARED else TILE_ROWS


def blocks_of(dtype: torch.dtype, head_dim: int, rows: int, shared: int = LEAST_SHARED) -> Blocks:
    """Return the sizes of programs whose tiles have so many rows. There are so many bytes of shared memory."""
    block_dim = _block_dim(head_dim)
    keys = min(64, max(16, BLOCK_ELEMENTS[dtype] // block_dim))
    if rows < TILE_ROWS:
        return Blocks(keys, warps=4, stages=3, split=False)
    if dtype == torch.float32:  # its products are made of sums in registers
        return Blocks(keys, warps=8 if block_dim <= 64 else 16, stages=2, split=False)
    return Blocks(keys, warps=8, stages=3 if shared > LEAST_SHARED else 2, split=True)


def block_rows(rows: int, groups: int) -> int:
    """Return a program's rows for tiles of so many. One token's heads count if these are more."""
    return max(rows, int(triton.next_power_of_2(groups)))


def shared_bytes(device: torch.device) -> int:
    """Return the shared memory that a program may have on a device; in the interpreter, the least of any GPU."""
    return _shared_bytes(device.index or 0) if device.type == "cuda" else LEAST_SHARED


@cache
def _shared_bytes(device: int) -> int:
    return shared_bytes_with(torch.cuda.get_device_capability(device))


def shared_bytes_with(capability: tuple[int, int]) -> int:
    """Return the shared memory that a program may have with a compute capability, as in (9, 0)."""
    return SHARED_BYTES.get(capability, LEAST_SHARED)


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    plan: AttentionPlan,
    scale: float,
    rules: AttentionRules = PLAIN,
    blocks: Blocks | None = None,
) -> Tensor:
    """Attend within each sequence of a plan.

    q: [T, q_heads, head_dim], contiguous; keys, values: a layer's [num_pages, page_size, kv_heads, head_dim], strided,
    of the same dtype, one of BLOCK_ELEMENTS; returns the same as q. Products are summed in float32, those of float32
    without TF32. A token sees the keys before its limit, of which a window leaves those less than so many positions
    before it; a token that sees none gets 0. `scale` is positive, `rules` what some models do beside that. `blocks` are
    the kernel's sizes, if not those of `blocks_of`, and have keys of which parts are multiples. Raises ValueError if
    dtypes, heads or strides are others.
    """
    dtype, groups = q.dtype, plan.groups
    (tokens, q_heads, head_dim), shape, strides = q.shape, keys.shape, keys.stride()
    _, page_size, kv_heads, key_dim = shape
    if not dtype == keys.dtype == values.dtype or dtype not in BLOCK_ELEMENTS:
        raise ValueError(f"queries are {dtype}, keys {keys.dtype}, values {values.dtype}: must be one float type")
    if q_heads != kv_heads * groups or head_dim != key_dim or tokens != plan.tokens:
        raise ValueError(
            f"queries {(tokens, q_heads, head_dim)} do not fit keys {tuple(shape)} and a plan of {plan.tokens} tokens "
            f"and {groups} query heads for each of the keys' heads"
        )
    if not q.is_contiguous() or shape != values.shape or strides != values.stride() or strides[3] != 1:
        raise ValueError("queries must be contiguous, keys and values have one shape and stride, which is 1 in a head")
    out = torch.empty_like(q)
    partial_out, partial_lse = plan.partials(q_heads, head_dim)
    window, chunk, cap, sinks = rules
    numbers = scale * LOG2_E, NO_WINDOW if window is None else window, chunk, cap and cap / scale, *strides[:3]
    windowed, shared = not (window is None and chunk is None), shared_bytes(q.device)
    for count, parts, rows in plan.launches:
        own = rows, windowed, plan.ordered_keys, shared, blocks
        launcher = _attend_launcher(dtype, page_size, groups, head_dim, *own)
        tensors = q, keys, values, parts, plan.pages, plan.limits, out, partial_out, partial_lse, sinks
        launcher((count, kv_heads), tensors, numbers)
    if plan.merged:
        merge = _merge_launcher(head_dim, plan.ordered_keys > 0)
        merge((plan.merged, q_heads), (partial_out, partial_lse, plan.merges, out, sinks))
    return out


@cache
def _attend_launcher(
    dtype: torch.dtype,
    page_size: int,
    groups: int,
    head_dim: int,
    rows: int,
    windowed: bool,
    ordered_keys: int,
    shared: int,
    blocks: Blocks | None,
) -> Launcher:
    rows = block_rows(rows, groups)
    sizes = blocks or blocks_of(dtype, head_dim, rows, shared)
    constants = {
        "PAGE_SIZE": page_size,
        "GROUPS": groups,
        "HEAD_DIM": head_dim,
        "BLOCK_ROWS": rows,
        "BLOCK_KEYS": sizes.keys,
        "BLOCK_DIM": _block_dim(head_dim),
        "SPLIT": sizes.split,
        "WINDOWED": sizes.split and windowed,
        "PART_KEYS": ordered_keys,
    }
    return Launcher(_attend, constants, num_warps=sizes.warps, num_stages=sizes.stages)


@cache
def _merge_launcher(head_dim: int, in_order: bool) -> Launcher:
    parts, unrolled = (1, 8) if in_order else (16, 1)  # several are read at once
    constants = {"HEAD_DIM": head_dim, "BLOCK_PARTS": parts, "UNROLLED": unrolled, "BLOCK_DIM": _block_dim(head_dim)}
    return Launcher(_merge, constants, num_warps=4)


def _block_dim(head_dim: int) -> int:
    return max(16, int(triton.next_power_of_2(head_dim)))


@triton.jit
def _attend(
    q,
    keys,
    values,
    parts,
    pages,
    limits,
    out,
    partial_out,
    partial_lse,
    sinks,
    scale,
    window,
    chunk,
    cap,
    page_stride,
    token_stride,
    head_stride,
    PAGE_SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr,
    PART_KEYS: tl.constexpr,
):
    """Let one tile attend to one part of its keys. The heads are those of one key/value head.

    `scale` is for powers of 2, `cap` of scores before that; parts that are None (chunk, cap, sinks) are not compiled.
    With PART_KEYS a program may have several parts of so many keys, which it merges one after another.
    """
    part = parts + tl.program_id(0) * 8
    tokens = tl.load(part + 1)
    if tokens == 0:  # beyond a row's length; nobody merges what is not stored here
        return
    kv_head = tl.program_id(1)
    q_heads = tl.num_programs(1) * GROUPS
    first_row = tl.load(part)
    position = tl.load(part + 2)
    pages += tl.load(part + 3)
    end = tl.load(part + 5)
    partial = tl.load(part + 6)

    lanes = tl.arange(0, BLOCK_ROWS)
    token = lanes // GROUPS
    head = kv_head * GROUPS + lanes % GROUPS
    dims = tl.arange(0, BLOCK_DIM)
    in_tile = token < tokens
    in_head = dims < HEAD_DIM
    used = in_tile[:, None] & in_head[None, :]
    rows = (first_row + token).to(tl.int64) * q_heads + head
    queries = tl.load(q + rows[:, None] * HEAD_DIM + dims[None, :], mask=used, other=0.0)
    limit = tl.load(limits + first_row + token, mask=in_tile, other=0)
    start = position + token - window + 1
    begin = tl.maximum(tl.load(part + 4), position - window + 1)
    last_start = position + tokens - window
    if chunk is not None:
        start = tl.maximum(start, (position + token) // chunk * chunk)
        begin = tl.maximum(begin, position // chunk * chunk)
        last_start = tl.maximum(last_start, (position + tokens - 1) // chunk * chunk)

    keys += kv_head * head_stride
    values += kv_head * head_stride
    least = tl.min(tl.where(in_tile, limit, NO_LIMIT), 0)
    if PART_KEYS:
        highest = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_ROWS], tl.float32)
        sums = tl.zeros([BLOCK_ROWS, BLOCK_DIM], tl.float32)
        for first in range(begin // PART_KEYS * PART_KEYS, end, PART_KEYS):
            lse, part_total, part_sums = _attend_part(
                queries,
                limit,
                least,
                start,
                last_start,
                keys,
                values,
                pages,
                dims,
                in_head,
                tl.maximum(begin, first),
                tl.minimum(end, first + PART_KEYS),
                scale,
                cap,
                page_stride,
                token_stride,
                PAGE_SIZE,
                BLOCK_KEYS,
                HEAD_DIM < BLOCK_DIM,
                SPLIT,
                WINDOWED,
            )
            lse += tl.log2(part_total)
            part_sums /= part_total[:, None]
            higher = tl.maximum(highest, lse)
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            weight = tl.exp2(lse - shift)
            decay = tl.exp2(highest - shift)
            total = tl.fma(total, decay, weight)
            sums = tl.fma(sums, decay[:, None], part_sums * weight[:, None])
            highest = higher
        total = tl.where(total == 0.0, 1.0, total)
    else:
        highest, total, sums = _attend_part(
            queries,
            limit,
            least,
            start,
            last_start,
            keys,
            values,
            pages,
            dims,
            in_head,
            begin,
            end,
            scale,
            cap,
            page_stride,
            token_stride,
            PAGE_SIZE,
            BLOCK_KEYS,
            HEAD_DIM < BLOCK_DIM,
            SPLIT,
            WINDOWED,
        )

    if sinks is not None:
        total += tl.where(partial < 0, _sink(sinks, head, highest, in_tile), 0.0)
    result = sums / total[:, None]
    if partial < 0:
        tl.store(out + rows[:, None] * HEAD_DIM + dims[None, :], result.to(out.dtype.element_ty), mask=used)
    else:
        if PART_KEYS:  # it is of one part, whose total is 1
            result = sums
        else:
            highest += tl.log2(total)
        rows = (partial + token).to(tl.int64) * q_heads + head
        tl.store(partial_out + rows[:, None] * HEAD_DIM + dims[None, :], result, mask=used)
        tl.store(partial_lse + rows, highest, mask=in_tile)


@triton.jit
def _attend_part(
    queries,
    limit,
    least,
    start,
    last_start,
    keys,
    values,
    pages,
    dims,
    in_head,
    begin,
    end,
    scale,
    cap,
    page_stride,
    token_stride,
    PAGE_SIZE: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    PADDED: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """Attend to the keys from `begin` to `end`: return the highest scores, scaled, and what is summed relative to them.

    The total of a row that sees no key is 1, so that its output is 0.
    """
    highest = tl.full([queries.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([queries.shape[0]], tl.float32)
    sums = tl.zeros(queries.shape, tl.float32)
    first = begin // BLOCK_KEYS * BLOCK_KEYS
    seen_from, seen_to = first, first
    if SPLIT:
        # what every row sees whole: behind the first key of the last row, before the least limit of any
        seen_from = tl.cdiv(tl.maximum(begin, last_start), BLOCK_KEYS) * BLOCK_KEYS
        seen_from = tl.minimum(seen_from, tl.maximum(first, end))
        seen_to = tl.maximum(tl.minimum(end, least) // BLOCK_KEYS * BLOCK_KEYS, seen_from)
    # what is before that (nothing without a window, because parts begin at blocks), that, and what is behind it
    for phase in tl.static_range(0 if WINDOWED else 1 if SPLIT else 2, 3):
        highest, total, sums = _attend_to(
            highest,
            total,
            sums,
            queries,
            limit,
            start,
            keys,
            values,
            pages,
            dims,
            in_head,
            begin,
            end,
            first if phase == 0 else seen_from if phase == 1 else seen_to,
            seen_from if phase == 0 else seen_to if phase == 1 else end,
            scale,
            cap,
            page_stride,
            token_stride,
            PAGE_SIZE,
            BLOCK_KEYS,
            PADDED,
            phase != 1,
        )
    return highest * scale, tl.where(total == 0.0, 1.0, total), sums


@triton.jit
def _attend_to(
    highest,
    total,
    sums,
    queries,
    limit,
    start,
    keys,
    values,
    pages,
    dims,
    in_head,
    begin,
    end,
    first,
    last,
    scale,
    cap,
    page_stride,
    token_stride,
    PAGE_SIZE: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    PADDED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Take the blocks from `first` to `last` into a tile's highest scores and sums. Scores are unscaled.

    Numbers are rounded alike whether MASKED or not: where a compiler might fuse products and sums, they are fused here.
    """
    lanes = tl.arange(0, BLOCK_KEYS)
    # of the next block while one is computed: else its keys and values would wait for their pages
    page = _page_numbers(pages, first + lanes, begin, tl.minimum(end, last), PAGE_SIZE)
    for block in range(first, last, BLOCK_KEYS):
        # whatever lies in other slots, NaN too, is not read
        key = block + lanes
        present = (key >= begin) & (key < end)
        following = _page_numbers(pages, key + BLOCK_KEYS, begin, tl.minimum(end, last), PAGE_SIZE)
        slots = page.to(tl.int64) * page_stride + key % PAGE_SIZE * token_stride
        offsets = slots[:, None] + dims[None, :]
        k = _stored(keys + offsets, present, in_head, PADDED, MASKED)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee")
        if cap is not None:
            scores = cap * _tanh(scores * (1.0 / cap))
        if MASKED:
            seen = (key[None, :] < limit[:, None]) & (key[None, :] >= start[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher) * -scale  # a row may see no key of this block
        weights = tl.exp2(tl.fma(scores, scale, shift[:, None]))
        decay = tl.exp2(tl.fma(highest, scale, shift))
        total = tl.fma(total, decay, tl.sum(weights, 1))
        v = _stored(values + offsets, present, in_head, PADDED, MASKED)
        sums = tl.dot(weights.to(v.dtype), v, sums * decay[:, None], input_precision="ieee")
        highest = higher
        page = following
    return highest, total, sums


@triton.jit
def _tanh(x):
    """Return the hyperbolic tangent; near 0 by a polynomial, where the difference of exponentials would lose digits."""
    square = x * x
    near = tl.fma(square, -5.70526e-3, 2.063932e-2)
    near = tl.fma(near, square, -5.373979e-2)
    near = tl.fma(near, square, 0.13331443)
    near = tl.fma(near, square, -0.33333282)
    near = tl.fma(near * square, x, x)
    far = 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)  # 2 * log2(e)
    return tl.where(square < 0.390625, near, far)


@triton.jit
def _sink(sinks, head, highest, used):
    """Return what sinks add to sums of powers of 2, relative to 2 ** highest."""
    sink = tl.load(sinks + head, mask=used, other=0.0).to(tl.float32) * 1.4426950408889634
    return tl.exp2(sink - tl.where(highest == float("-inf"), 0.0, highest))


@triton.jit
def _stored(places, present, in_head, PADDED: tl.constexpr, MASKED: tl.constexpr):
    """Return a block's keys or values, 0 where there are none."""
    if MASKED:
        block = tl.load(places, mask=present[:, None] & in_head[None, :], other=0.0)
    elif PADDED:
        block = tl.load(places, mask=in_head[None, :], other=0.0)
    else:
        block = tl.load(places)
    return block


@triton.jit
def _page_numbers(pages, key, begin, end, PAGE_SIZE: tl.constexpr):
    """Return the page of each key, 0 of those that are not there."""
    return tl.load(pages + key // PAGE_SIZE, mask=(key >= begin) & (key < end), other=0)


@triton.jit
def _merge(
    partial_out,
    partial_lse,
    merges,
    out,
    sinks,
    HEAD_DIM: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
    UNROLLED: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    """Merge the parts of one token's output for one head."""
    merge = merges + tl.program_id(0) * 4
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    row = tl.load(merge).to(tl.int64) * heads + head
    first = tl.load(merge + 1)
    step = tl.load(merge + 2)
    count = tl.load(merge + 3)
    dims = tl.arange(0, BLOCK_DIM)
    in_head = dims < HEAD_DIM

    highest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    sums = tl.zeros([BLOCK_DIM], tl.float32)
    for block in tl.range(0, count, BLOCK_PARTS, loop_unroll_factor=UNROLLED):
        part = block + tl.arange(0, BLOCK_PARTS)
        rows = (first + part * step).to(tl.int64) * heads + head
        lse = tl.load(partial_lse + rows, mask=part < count, other=float("-inf"))
        stored = (part < count)[:, None] & in_head[None, :]
        outputs = tl.load(partial_out + rows[:, None] * HEAD_DIM + dims[None, :], mask=stored, other=0.0)
        higher = tl.maximum(highest, tl.max(lse, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(lse - shift)
        decay = tl.exp2(highest - shift)
        total = tl.fma(total, decay, tl.sum(weights, 0))
        sums = tl.fma(sums, decay, tl.sum(weights[:, None] * outputs, 0))
        highest = higher
    total = tl.where(total == 0.0, 1.0, total)
    if sinks is not None:  # once a token: parts leave it out
        total += _sink(sinks, head, highest, True)
    result = sums / total
    if count > 0:
        tl.store(out + row * HEAD_DIM + dims, result.to(out.dtype.element_ty), mask=in_head)
