"""The GPU's path on a stand-in for the GPU: plain torch in place of its kernels, on a device that computes late."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import deferred_device
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.dlpack import from_dlpack

from ipc_buffers import Memory
from unifiedserve.attention import PLAIN, AttentionRules, CrossSpan, RaggedBatch, cross_attention, reference
from unifiedserve.attention.base import SequenceView
from unifiedserve.config import DeviceName
from unifiedserve.device import CPU, DecodeStep, Exchange, Exchanges, Meeting, Pending, Room, SideQueue
from unifiedserve.device.base import Kernels, Mark, Sharing
from unifiedserve.device.cuda.kernels import CudaKernels
from unifiedserve.device.cuda.sharing import TimeSlices
from unifiedserve.device.cuda.side_stream import Issued
from unifiedserve.device.cuda.unseen import decode_bytes
from unifiedserve.device.llama import is_llama_like
from unifiedserve.device.operators import PlannedAttention
from unifiedserve.device.triton.attention_plan import scratch_of_rows

T = TypeVar("T")


class PlainAttention:
    """`Attention` by plain torch."""

    def of_batch(self, batch: RaggedBatch, groups: int) -> PlannedAttention:
        def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
            assert q.shape[1] == groups * keys.shape[2]
            out = torch.empty_like(q)
            reference.attend(q, out, keys, values, batch.sequences, scale, rules)
            return out

        return attend

    scratch_of_rows = staticmethod(scratch_of_rows)

    def of_rows(self, lengths: Tensor, table: Tensor, context: int, groups: int, scratch: Tensor) -> PlannedAttention:
        def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
            assert q.shape[1] == groups * keys.shape[2]
            needed = scratch_of_rows(len(q), context, *q.shape[1:])
            assert needed <= len(scratch)
            scratch[:needed].fill_(torch.nan)
            out = torch.empty_like(q)
            deferred_device.launch(_attend_rows, q, keys, values, lengths, table, out, scale, rules, context)
            return out

        return attend

    def of_spans(self, spans: Sequence[CrossSpan], groups: int) -> PlannedAttention:
        def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
            assert q.shape[1] == groups * keys.shape[2]
            return cross_attention(q, keys[:, 0], values[:, 0], spans, scale)

        return attend


class PlainPointwise:
    """`Pointwise` by plain torch, in float32."""

    def add_rms_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        if delta is not None:
            residual += delta
        return functional.rms_norm(residual, weight.shape, weight.float(), epsilon).to(weight.dtype)

    def store_kv(
        self,
        qkv: Tensor,
        cosine: Tensor,
        sine: Tensor,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
        query_norm: Tensor | None = None,
        key_norm: Tensor | None = None,
        epsilon: float = 0.0,
    ) -> Tensor:
        kv_heads, head_dim = keys.shape[2:]
        heads = qkv.float().view(len(qkv), -1, head_dim)
        q, k, v = torch.split(heads, [heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1)
        if query_norm is not None and key_norm is not None:
            q = functional.rms_norm(q, query_norm.shape, query_norm.float(), epsilon)
            k = functional.rms_norm(k, key_norm.shape, key_norm.float(), epsilon)
        deferred_device.launch(_store, keys, _turned(k, cosine, sine).to(keys.dtype), slots)
        deferred_device.launch(_store, values, v.to(values.dtype), slots)
        return _turned(q, cosine, sine).to(qkv.dtype)

    def silu_mul(self, gate_up: Tensor, width: int | None = None) -> Tensor:
        gate, up = gate_up.float().chunk(2, dim=1)
        product = (functional.silu(gate) * up).to(gate_up.dtype)
        return product if width is None else functional.pad(product, (0, width - product.shape[1]))

    def rotate_heads(self, heads: Tensor, cosine: Tensor, sine: Tensor) -> None:
        heads.copy_(_turned(heads.float(), cosine.repeat(1, 2), sine.repeat(1, 2)))


class DeferredStream:
    """A `SideStream` and a `SideQueue` whose work is done when its values are waited for, no further."""

    tells = False

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex

    def start(self, work: Callable[[], T], then: Callable[[], object]) -> Pending[T]:
        with self.use():
            return Issued(work(), self.mark())

    def close(self) -> None:
        pass

    @contextmanager
    def use(self) -> Iterator[None]:
        deferred_device.synchronize()
        with deferred_device.process(self._name):
            yield

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        work()
        return deferred_device.record(work)

    def mark(self) -> Mark:
        return BatchMark(self._name)

    def download(self, tokens: Tensor) -> DecodeStep:
        return _Download(self._name, tokens)


class BatchMark:
    """It is done when it is waited for, or asked for the second time."""

    def __init__(self, process: str) -> None:
        self._process, self._asked = process, False
        self._reach = deferred_device.mark()

    def done(self) -> bool:
        if self._asked:
            self.wait()
        self._asked = not self._asked
        return not self._asked

    def wait(self) -> None:
        with deferred_device.process(self._process):
            self._reach()


class _Download:
    def __init__(self, process: str, tokens: Tensor) -> None:
        self._process = process
        self._host = torch.empty(tokens.shape, dtype=tokens.dtype)
        self._host.copy_(tokens, non_blocking=True)
        self._reach = deferred_device.mark()

    def wait(self) -> None:
        with deferred_device.process(self._process):
            self._reach()

    def tokens(self) -> list[int]:
        self.wait()
        tokens: list[int] = self._host.tolist()
        return tokens


class LateExchange:
    """An `Exchange` of the host's whose operations are queued as kernels are: the host waits for nobody."""

    def __init__(self, host: Exchange) -> None:
        self._host = host

    @property
    def leads(self) -> bool:
        return self._host.leads

    @property
    def native(self) -> NoReturn:
        raise TypeError("there are no kernels in C++")

    def all_reduce(self, values: Tensor) -> None:
        deferred_device.launch(self._host.all_reduce, values)

    def broadcast(self, values: Tensor) -> None:
        deferred_device.launch(self._host.broadcast, values)

    def gather(self, own: Tensor, every: Tensor | None, patience: int = 1) -> None:
        if every is None:
            deferred_device.launch(lambda own: self._host.gather(own, None, patience), own)
        else:
            deferred_device.launch(lambda own, every: self._host.gather(own, every, patience), own, every)


class DeferredDevice:
    """A `Device` whose memory is shared memory of the host, and whose work is done at the fence."""

    name: DeviceName = "cuda"
    place = "host"
    frames = "cpu"

    def __init__(self, room: Callable[[], Room] | None = None, video_bytes: int = 0) -> None:
        deferred_device.install()
        self.torch = torch.device("deferred", 0)
        self.synchronous = False
        self.apart = True
        self.sharing: Sharing = TimeSlices()
        self.kernels: Kernels = CudaKernels(self, PlainAttention(), PlainPointwise(), functional.linear, DeferredStream)
        self._video_bytes = video_bytes
        self._room = room or (lambda: Room("a stand-in", 1 << 30, 1 << 30))

    def place_of(self, gpu: int) -> str:
        return self.place

    def at(self, place: str) -> "DeferredDevice":
        return self

    def seen_as(self, place: str, own: str) -> str:
        return place

    def best_dtype(self) -> str:
        return "float32"

    def check(self, dtype: str) -> None:
        pass

    def verify(self) -> None:
        pass  # it multiplies as the host does

    def room(self) -> Room:
        return self._room()

    def panels(self, dtype: str) -> bool:
        return False

    def divides(self, text: Any, dtype: str) -> bool:
        return is_llama_like(text)

    def place_of_rank(self, place: str, rank: int) -> str:
        return self.place

    def exchanges(self, meeting: Meeting) -> Exchanges:
        found = CPU.exchanges(meeting)
        return Exchanges(LateExchange(found.every), LateExchange(found.encoder) if found.encoder else None)

    def decode_bytes(self, text: Any, rows: int, tokens: int, page_size: int) -> int:
        return decode_bytes(text, rows, tokens, page_size)

    def video_bytes(self) -> int:
        return self._video_bytes

    def slowness(self) -> str | None:
        return None

    def view(self, memory: Memory) -> Tensor:
        return deferred_device.view(from_dlpack(memory))

    def side_queue(self) -> SideQueue:
        return DeferredStream()

    def upload(self, host: Tensor) -> Tensor:
        return host.to(self.torch)

    def adopt(self, frames: Any) -> Tensor:
        return deferred_device.view(from_dlpack(frames))

    def fence(self) -> None:
        deferred_device.synchronize()


def _turned(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]


def _store(cache: Tensor, new: Tensor, slots: Tensor) -> None:
    stored = slots >= 0
    cache[slots[stored] // cache.shape[1], slots[stored] % cache.shape[1]] = new[stored]


def _attend_rows(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    table: Tensor,
    out: Tensor,
    scale: float,
    rules: AttentionRules,
    context: int,
) -> None:
    out.fill_(torch.nan)
    rows = [row for row, length in enumerate(lengths.tolist()) if length]
    views = [SequenceView(row, row + 1, table[row], int(lengths[row]), None) for row in rows]
    assert all(view.kv_len <= context for view in views)
    reference.attend(q, out, keys, values, views, scale, rules)
