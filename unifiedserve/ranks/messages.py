"""Define what rank 0 tells the other ranks: each message is one operation that all take part in."""

import msgspec
import numpy as np
import torch
from torch import Tensor

from unifiedserve.attention import RaggedBatch
from unifiedserve.device import DecodeRow
from unifiedserve.messages.layouts import decode_layout
from unifiedserve.messages.media import MediaPlan


class Embed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Embed token ids int64 [n]."""

    token_ids: bytes


class Step(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Run the layers on embeddings [T, width], which follow by broadcast.

    `positions` are int64 [P, T] with P = `position_rows`; the others are those of a `RaggedBatch`, as bytes.
    """

    width: int
    position_rows: int
    positions: bytes
    slots: bytes
    qo_indptr: bytes
    kv_page_indptr: bytes
    kv_page_indices: bytes
    kv_lens: bytes
    wanted_indptr: bytes

    @staticmethod
    def of(width: int, positions: Tensor, batch: RaggedBatch) -> "Step":
        """Return the message for a step."""
        return Step(
            width=width,
            position_rows=len(positions),
            positions=to_bytes(positions),
            slots=to_bytes(batch.slots),
            qo_indptr=to_bytes(batch.qo_indptr),
            kv_page_indptr=to_bytes(batch.kv_page_indptr),
            kv_page_indices=to_bytes(batch.kv_page_indices),
            kv_lens=to_bytes(batch.kv_lens),
            wanted_indptr=to_bytes(batch.wanted_indptr),
        )

    def batch(self) -> tuple[Tensor, RaggedBatch]:
        """Return positions int64 [P, T] and the batch."""
        kv_lens = _tensor(self.kv_lens, np.int32)
        batch = RaggedBatch(
            qo_indptr=_tensor(self.qo_indptr, np.int32),
            kv_page_indptr=_tensor(self.kv_page_indptr, np.int32),
            kv_page_indices=_tensor(self.kv_page_indices, np.int32),
            kv_lens=kv_lens,
            slots=_tensor(self.slots, np.int64),
            wanted_indptr=_tensor(self.wanted_indptr, np.int32),
            limits=(None,) * len(kv_lens),
        )
        return _tensor(self.positions, np.int64).view(self.position_rows, -1), batch


class Logits(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Make logits of hidden states [rows, hidden], which follow by broadcast."""

    rows: int


class Launch(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Launch a step of the device's own decoder for these rows.

    Their tokens follow by broadcast. Each row has only the pages behind those `known`, which were told before.
    """

    rows: list[DecodeRow]
    known: list[int]


class Forget(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Let a row of the device's own decoder be another sequence's."""

    row: int


class Prepare(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Record what the next steps of the device's own decoder need."""


class CopyPages(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Copy all that is in some pages of the KV cache to others.

    This is told where each rank has a memory of its own.
    """

    sources: list[int]
    targets: list[int]


class GiveWay(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Leave half of the cores to other processes from now on, or use all."""

    giving: bool


class Encode(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Begin a batch of the encoder, of patches uint8 [rows, row_bytes], which follow by broadcast.

    `units` are, in their order, how many whole units of which medium they are.
    """

    number: int
    rows: int
    row_bytes: int
    units: list[tuple[MediaPlan, int]]


class Layer(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Go on to the next layer of the encoder with a batch."""

    number: int


class Encoded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End a batch of the encoder; its tokens are so wide."""

    number: int
    width: int


class Drop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Give a batch of the encoder up."""

    number: int


class Leave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End."""


Message = (
    Embed | Step | Logits | Launch | Forget | Prepare | CopyPages | GiveWay | Encode | Layer | Encoded | Drop | Leave
)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=decode_layout)


def pack(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def unpack(data: bytes) -> Message:
    return _decoder.decode(data)


def to_bytes(tensor: Tensor) -> bytes:
    """Return the elements of a tensor, row by row."""
    return tensor.contiguous().numpy().tobytes()


def token_ids(message: Embed) -> Tensor:
    """Return the token ids int64 [n] of a message."""
    return _tensor(message.token_ids, np.int64)


def _tensor(data: bytes, dtype: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype))
