"""Define what the engine asks of hardware that computes.

A further kind of it implements `Device`, and the types that it returns. Tensors that the model computes with are on
`Device.torch`. The host's plans (ragged batches, page numbers, positions, masks) are in host memory, and are uploaded
where they meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import torch

from ipc_buffers import AllReduce, Collective, Memory
from unifiedserve.attention import PLAIN, AttentionRules, PagedKV, RaggedBatch
from unifiedserve.config import DeviceName
from unifiedserve.placement import Instance

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Activation = Literal["none", "gelu", "silu"]


class LinearWeights(NamedTuple):
    """Hold the used parts of a torch.nn.Linear: weight [outputs, inputs], bias [outputs]."""

    weight: Tensor
    bias: Tensor | None


Layer = Any  # LinearWeights, a torch.nn.Linear, or what a device puts in its place


class SequenceGroup(NamedTuple):
    """Name sequences of `length` rows each, which lie back to back from row `start` on."""

    start: int
    sequences: int
    length: int


class AttentionStep(Protocol):
    """Attend for one step: a ragged batch over a paged KV cache, planned once for all layers."""

    def attend(
        self, q: Tensor, k_new: Tensor, v_new: Tensor, layer: int, scale: float, rules: AttentionRules = PLAIN
    ) -> Tensor:
        """Write a layer's new keys and values into their slots, then attend within each sequence.

        q: [T, q_heads, head_dim]; k_new, v_new: [T, kv_heads, head_dim]; returns [T, q_heads, head_dim]. A token sees
        the keys before its limit (see RaggedBatch), of which a window leaves those less than so many positions
        before it.
        """

    def attend_across(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Let every token of the batch's `cross` spans attend to all of its span's rows.

        q: [S, q_heads, head_dim], the spans' tokens back to back; keys, values: [rows, kv_heads, head_dim], strided;
        returns [S, q_heads, head_dim].
        """


class StepRunner(Protocol):
    """Run the layers of one language model for a step."""

    def __call__(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Return final hidden states [W, hidden] of the wanted tokens.

        Inputs are embeds [T, width] and positions int64 [P, T]. All tokens' keys and values go to the cache. Further
        columns of `embeds` beyond the embedding are added after the first layers, `hidden` columns after each.
        """


class Exchange(Protocol):
    """Join tensors of several ranks: each rank calls every method at once, in the same order.

    Tensors are contiguous, and where the ranks compute. Where the host waits for the others, a rank that does not come
    in time is named by a CollectiveError.
    """

    @property
    def leads(self) -> bool:
        """Tell whether this rank is the first one."""

    @property
    def native(self) -> AllReduce:
        """Return what sums up for kernels in C++. Raises TypeError where there are none."""

    def all_reduce(self, values: Tensor) -> None:
        """Replace values by the sums over all ranks."""

    def broadcast(self, values: Tensor) -> None:
        """Replace values by those of the first rank."""

    def gather(self, own: Tensor, every: Tensor | None, patience: int = 1) -> None:
        """Fill `every` [ranks, …] of the first rank with the `own` […] of each; the others give None.

        A rank may come `patience` times as late as otherwise.
        """


class Meeting(NamedTuple):
    """Say where the ranks of a worker find each other: this rank's ends of shared memory of the host.

    `encoder` joins `encoder_ranks` neighbours that share each unit of the vision encoder; None: one rank has each.
    Ranks wait `patience` seconds for each other.
    """

    rank: int
    ranks: int
    collective: Collective
    encoder: Collective | None = None
    encoder_ranks: int = 1
    patience: float = 60.0


class Exchanges(NamedTuple):
    """Hold what joins all ranks, and those that share units of the encoder, if any."""

    every: Exchange
    encoder: Exchange | None


class Ends(Protocol):
    """Do what is before and behind a language model's layers; its tensors are on the device."""

    @property
    def width(self) -> int:
        """Return how many logits there are of a hidden state."""

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids [n]."""

    def logits_of(self, hidden: Tensor) -> Tensor:
        """Return logits [k, width] of hidden states [k, hidden]."""


class DividedEnds(Ends, Protocol):
    """Do it over several ranks, which have the same token ids and hidden states.

    The first one has all logits, the others those of their part of the vocabulary.
    """

    @property
    def exchange(self) -> Exchange:
        """Return what joins the ranks."""


class DecodeRow(NamedTuple):
    """Describe a running sequence's next token.

    `token` comes behind `length` tokens in the cache, at `length + offset`. `number` is the row that the device keeps
    of the sequence. A token of None is the one that was drawn there last. `pages` are those of its tokens; a longer
    list begins with what it was before.
    """

    number: int
    token: int | None
    length: int
    offset: int
    pages: Sequence[int]


class DecodeStep(Protocol):
    """Follow a step of decode that a device was told to do."""

    def wait(self) -> None:
        """Return when it is done. Raises RuntimeError if it, or what came before, failed."""

    def tokens(self) -> list[int]:
        """Wait, and return the tokens that were drawn, in the order of its rows."""


class Decoder(Protocol):
    """Decode running sequences of which the device keeps the rows: the host says only what has changed.

    Steps are done one after another, beside the device's other work: its fence does not wait for them.
    """

    #: how many rows it keeps
    rows: int

    @property
    def wants(self) -> bool:
        """Tell whether there is something to `prepare`."""

    @property
    def eager_steps(self) -> int:
        """Return how many steps were issued operation by operation. No recording could repeat these."""

    def launch(self, rows: Sequence[DecodeRow], draw: Callable[[Tensor], Tensor]) -> DecodeStep:
        """Have the step done behind all that was issued so far; return at once.

        `draw` makes token ids int64 [n] on the device, of logits float32 [n, vocab] that are overwritten by the next
        step; an id below 0 may stand for a token that the host has yet to choose. Raises ValueError if a sequence has
        too few pages, or more than its row holds.
        """

    def forget(self, row: int) -> None:
        """Let a row be another sequence's from the next step on."""

    def prepare(self) -> None:
        """Record what the next steps need; call it between steps, because it may take as long as some of them."""


class Mark(Protocol):
    """Mark a place in a queue of work."""

    def done(self) -> bool:
        """Tell whether all before it is done."""

    def wait(self) -> None:
        """Return when it is. Raises RuntimeError if some of it failed."""


class SideStream(Protocol):
    """Queue work apart. `Device.fence` does not wait for it unless it is used."""

    def use(self) -> AbstractContextManager[Any]:
        """Issue the block's work to this stream, behind all earlier work elsewhere, and fence it."""

    def record(self, work: Callable[[], object]) -> Callable[[], object]:
        """Return what does the work again, on the same tensors, whatever their values; call it within `use`.

        Raises RuntimeError if it cannot be recorded; nothing should be recorded after that.
        """

    def mark(self) -> Mark:
        """Return a mark behind what was issued; within `use`."""

    def download(self, tokens: Tensor) -> DecodeStep:
        """Copy int64 [n] to the host behind what was issued, which is a step; within `use`."""


class Pending(Protocol[T_co]):
    """Hold a piece of work that goes on beside its caller."""

    def done(self) -> bool:
        """Tell whether it is done, or has failed."""

    def wait(self) -> T_co:
        """Return what it returned when all of it is done; to be called once. Raises what it raised, or RuntimeError."""


class SideQueue(Protocol):
    """Work beside what the thread does that owns this: one piece at a time, which that thread begins and waits for."""

    #: tells when a piece is done; where it does not, somebody has to wait
    tells: bool

    def start(self, work: Callable[[], T], then: Callable[[], object]) -> Pending[T]:
        """Have the work done behind all that was issued before, and return at once.

        `then` is called in another thread when it is done, by what `tells`.
        """

    def use(self) -> AbstractContextManager[Any]:
        """Let a fence within this wait for this work only."""

    def close(self) -> None:
        """End it when what is under way is done."""


class VisionKernels(Protocol):
    """Compute the steps of a vision encoder. Hidden states are [N, width]."""

    rows_at_once: int
    """How large N may be for these steps to be quick; an encoder takes more rows in parts."""

    def check_dtype(self, dtype: torch.dtype) -> None:
        """Raise ConfigError for a dtype that the kernels do not know."""

    def attend(self, qkv: Tensor, heads: int, cosine: Tensor, sine: Tensor, groups: Sequence[SequenceGroup]) -> Tensor:
        """Attend from [N, 3 * heads * head_dim] to [N, heads * head_dim]: a row sees all rows of its sequence.

        Queries and keys are rotated first, by float32 [N, head_dim / 2] of each row's angles; `qkv` may hold anything
        then. The groups are all rows in order.
        """

    def norm(self, hidden: Tensor, layer: Any) -> Tensor:
        """Return the RMSNorm of [N, width] by a layer of transformers, rounded once."""

    def layer(self, weight: Tensor, bias: Tensor) -> Layer:
        """Make a layer for `linear` of weight [outputs, inputs] and bias [outputs]."""

    def linear(self, x: Tensor, layer: Layer, activation: Activation = "none") -> Tensor:
        """Return [n, outputs] of x [n, inputs]; GELU is the exact one."""

    def linear_plus(self, x: Tensor, layer: Layer, summand: Tensor) -> Tensor:
        """Return [n, outputs] of x [n, inputs] and summand [n, outputs]."""

    def gated(self, mlp: Any) -> Callable[[Tensor, Tensor], Tensor]:
        """Return what makes down(silu(gate(x)) * up(x)) + summand of x and summand, [n, width] each.

        `mlp` has gate_proj, up_proj and down_proj.
        """


class Kernels(Protocol):
    """Compute what a device does better than torch's operators, one after another."""

    @property
    def vision(self) -> VisionKernels:
        """Return the steps of vision encoders."""

    def attention(self, batch: RaggedBatch, kv: PagedKV) -> AttentionStep:
        """Plan a step's attention."""

    def runner(self, language_model: Any, dtype: torch.dtype, exchange: Exchange | None = None) -> StepRunner | None:
        """Return what runs the layers of a text model of transformers; None if its own modules are to run them.

        With an `exchange` the model is one rank's part, and None means that the device cannot run it so.
        """

    def head(self, module: Any) -> Callable[[Tensor], Tensor]:
        """Return a head from hidden states [k, hidden] to float32 logits [k, vocab].

        These are valid until the next call.
        """

    def decoder(
        self, model: Any, kv: PagedKV, rows: int, tokens: int, position_rows: int, divided: DividedEnds | None = None
    ) -> Decoder | None:
        """Return a decoder of so many sequences, each of up to `tokens` tokens.

        The model is a causal one of transformers; `divided` is this rank's if it is spread over several. None if steps
        of decode are to be run like all others. Raises RuntimeError if a rank's cannot be made.
        """


class Room(NamedTuple):
    """Describe the memory of a device of its own, in bytes, and its name."""

    name: str
    total: int
    free: int


class Sharing(Protocol):
    """Share the hardware between the workers of an engine."""

    #: decode rests between its steps while others have work: without it they would not get at the hardware
    rests: bool

    @property
    def apart(self) -> bool:
        """Tell whether a worker's end leaves the others' work as it is. Then it can be replaced alone."""

    def start(self) -> None:
        """Begin to share, before there are workers, or again after all have ended.

        Called in the engine, as `stop` is. Raises ConfigError if it cannot be done as asked.
        """

    def environment(self, instance: Instance, place: str) -> dict[str, str]:
        """Return what a worker must have in its environment from its start; `place` is that of its memory."""

    def terminate(self, pids: Collection[int]) -> None:
        """Prepare the hardware for the end of workers that are about to be killed."""

    def stop(self) -> None:
        """End what `start` began; safe to call at any time."""

    def enter(self, instance: Instance, threads: int) -> None:
        """Take this worker's place beside the others; it may use `threads` of the processor's cores (0: all)."""

    def give_way(self, giving: bool) -> None:
        """Leave a part of the hardware to other workers, or use all again."""


class Device(Protocol):
    """Define a kind of hardware that computes.

    Work may be asynchronous: it is done in the order in which it was issued, and `fence` tells the host when. The one
    rule: no page is given back and no message sent before. `memory/device_pages.py` and `worker/outbox.py` keep it.
    """

    name: DeviceName
    #: where its shared memory is, as `ipc_buffers.Memory.create` has it
    place: str
    #: where FlashCodec is to put frames, as its `device` has it
    frames: str
    #: calls return when the work is done, so that other work can go in between
    synchronous: bool
    #: each rank of a worker has a memory of its own
    apart: bool
    sharing: Sharing

    @property
    def torch(self) -> torch.device:
        """Return what torch calls it."""
        ...

    @property
    def kernels(self) -> Kernels:
        """Return what it computes with, loaded when it is first asked for."""

    def place_of(self, gpu: int) -> str:
        """Return the place of the memory of a GPU's number. Only kinds with memory of their own have one."""

    def at(self, place: str) -> Device:
        """Return the device of its kind whose memory is at a place."""

    def seen_as(self, place: str, own: str) -> str:
        """Return how a worker knows a place, whose own memory is at `own`; both as the engine knows them."""

    def best_dtype(self) -> str:
        """Return what `--dtype auto` means."""

    def check(self, dtype: str) -> None:
        """Raise ConfigError if it lacks a dtype, or what it was told to use."""

    def verify(self) -> None:
        """Compute something whose result is known. Raises ConfigError if another one comes out."""

    def room(self) -> Room | None:
        """Return what there is of its own memory now, all processes' use counted; None if it computes in the host's."""

    def decode_bytes(self, text: Any, rows: int, tokens: int, page_size: int) -> int:
        """Return the bytes of decode that no rehearsed step shows. They are of its own memory.

        It is to decode so many sequences of up to so many tokens with a text model of this config.
        """

    def video_bytes(self) -> int:
        """Return the bytes of its own memory that all video decoders take in use."""

    def slowness(self) -> str | None:
        """Say why it is slower than it should be, for a warning at the start; None if it is not."""

    def panels(self, dtype: str) -> bool:
        """Tell whether the language model's matrices of a dtype are to lie in panels (see device/cpu/panels.py)."""

    def divides(self, text: Any, dtype: str) -> bool:
        """Tell whether it runs a text config's model over ranks, with weights of a dtype."""

    def place_of_rank(self, place: str, rank: int) -> str:
        """Return the place of a rank's weights and KV cache, given the first one's."""

    def exchanges(self, meeting: Meeting) -> Exchanges:
        """Join the ranks of a worker, all of which call this at once. Raises ConfigError if they cannot be joined."""

    def view(self, memory: Memory) -> Tensor:
        """Return shared memory at its `place` as uint8 [n]. The tensor keeps the bytes mapped."""

    def side_queue(self) -> SideQueue:
        """Return a queue of work beside all others; where `synchronous`, it takes a part of what the caller had."""

    def upload(self, host: Tensor) -> Tensor:
        """Return a copy on the device, made in the order of its work.

        The tensor is the host's, or another one's of its kind. The host may reuse its own at once; a tensor on another
        device must stay until a fence.
        """

    def adopt(self, frames: Any) -> Tensor:
        """Return frames that FlashCodec has put on a device, `__dlpack__`, as a tensor.

        It is of this kind, and they stay where they are. Their memory goes with the tensor: let go of it after a fence.
        """

    def fence(self) -> None:
        """Return when all that was issued is done. Raises RuntimeError if some of it failed."""
