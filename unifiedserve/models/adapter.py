"""Define the side of a model family for the workers: its modules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn import functional

from unifiedserve.attention import RaggedBatch
from unifiedserve.device import CPU, Decoder, Device, StepRunner
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVCache, KVPages
from unifiedserve.messages.media import MediaPlan
from unifiedserve.models.context_length import short_length
from unifiedserve.models.encoder_layers import layer_by_layer, pause, pause_before_each_layer
from unifiedserve.models.layer_positions import mark_layers
from unifiedserve.models.linear_attention import number_layers
from unifiedserve.models.loading import build_model
from unifiedserve.models.pooling import load_pooling
from unifiedserve.models.rope import LONG, settle_rope
from unifiedserve.models.scopes import Scope
from unifiedserve.placement import Network
from unifiedserve.ranks.decoder import LeadingDecoder
from unifiedserve.ranks.encoder import PartOfEncoder
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.leader import Leader, LeadingEncoder, SpreadEmbedding
from unifiedserve.ranks.model import PartOfModel

if TYPE_CHECKING:
    from torch import Tensor

NOT_DIVIDED = "this language model's layers are not those that can be divided; leave the option out"


class LanguageAdapter:
    """Hold the modules of one checkpoint's networks over shared weights (used in place, never written)."""

    #: rows of rotary positions: 3 for M-RoPE
    position_rows: ClassVar[int] = 1
    #: the visual tokens of a run see each other, so that all of them must be prefilled at once
    whole_runs: ClassVar[bool] = False
    #: visual tokens are keys and values for cross-attention: they are kept as long as the sequence, see `scopes`
    keeps_visual_rows: ClassVar[bool] = False
    #: ranks can have some heads and inner columns each of its vision encoder
    divides_encoder: ClassVar[bool] = False

    def __init__(
        self,
        config: Any,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        model_dir: Path,
        device: Device = CPU,
        networks: Collection[Network] = tuple(Network),
        group: Group | None = None,
    ) -> None:
        """Take what these `networks` need of the weights; the other one has no values, and must not be run.

        In a `group` the weights are one rank's part. Raises ConfigError if the device cannot run such a part.
        """
        generates = (pooling := load_pooling(model_dir)) is None
        speaks = Network.LANGUAGE in networks
        self.config = config
        self.device = device
        #: token ids that stand for visual tokens
        self.visual_ids = _visual_ids(config)
        self.dtype = dtype
        self.pooling = pooling
        part = group.part if group else None
        self.model: Any = build_model(
            config, weights, dtype, device.torch, generates=generates, networks=networks, part=part
        )
        self.language_model: Any = _decoder(self.model)
        number_layers(self.language_model)
        mark_layers(self.language_model)
        settle_rope(self.language_model, self.position_rows)
        self._short_length = short_length(config.get_text_config())
        pause_before_each_layer(self.model, self.language_model)
        exchange = group.exchange if group else None
        runner = device.kernels.runner(self.language_model, dtype, exchange) if speaks else None
        #: the device runs the language model's layers itself, not by the modules of transformers
        self.fused = runner is not None
        self._run = runner or self.run_modules
        self._head = device.kernels.head(self.model.get_output_embeddings()) if generates and speaks else None
        self._give_way: Callable[[bool], None] = device.sharing.give_way
        #: what this rank has of the language model, of several
        self.part = self._join(group, runner) if group and speaks else None
        #: and of the vision encoder, if that is more than one rank's
        self.encoder_part = self._share_encoder(group) if group and Network.ENCODER in networks else None
        self._leading = LeadingEncoder(self.encoder_part) if self.encoder_part and group and group.leads else None

    def give_way(self, giving: bool) -> None:
        """Leave half of the cores to other processes from now on, or use all: every rank of a group does."""
        self._give_way(giving)

    def _join(self, group: Group, runner: StepRunner | None) -> PartOfModel:
        """Become one rank of a group; the first one has the others take part in all that it is asked for."""
        if runner is None:
            raise ConfigError(f"--tensor-parallel-size {group.part.ranks}: {NOT_DIVIDED}")
        embedding = self.language_model.get_input_embeddings()
        hidden: int = self.config.get_text_config().hidden_size
        part = PartOfModel(group, embedding, runner, self._head, hidden, self.dtype, self.device)
        if group.leads:
            leader = Leader(part)
            self.language_model.set_input_embeddings(SpreadEmbedding(leader))
            self._run, self._head = leader.step, self._head and leader.logits
            self._give_way = leader.give_way
        return part

    def _share_encoder(self, group: Group) -> PartOfEncoder | None:
        """Become one of the ranks that run the encoder, if several do."""
        if group.part.encoder.ranks.total == 1:
            return None

        def layers(patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Generator[None, None, Tensor]:
            return layer_by_layer(lambda: self.encode(patches, units))

        return PartOfEncoder(group, layers, self.dtype, self.device.torch)

    def positions(self, token_ids: Sequence[int], media: Sequence[MediaPlan]) -> Tensor:
        """Return rotary positions of a whole prompt: int64 [P, n], P = `position_rows`.

        Here they are the tokens' numbers, from `LONG` on in a prompt that is long to its `LongRope`.
        """
        is_long = self._short_length is not None and len(token_ids) > self._short_length
        return torch.arange(len(token_ids))[None] + (LONG if is_long else 0)

    def next_position(self, positions: Tensor) -> int:
        """Return the offset of generated tokens' positions.

        Token i (from 0), at index n + i, has position n + i + offset. Positions count on from the prompt's last token,
        as `generate` does, even where a video's times reached further.
        """
        return int(positions[:, -1].max()) + 1 - positions.shape[1]

    def limits(self, start: int, is_visual: Tensor) -> Tensor | None:
        """Return what tokens of a chunk from prompt position `start` see, as `Span.limits`; bool [n] `is_visual`.

        With `whole_runs` a chunk must not end within a run; it may begin there.
        """
        if not (self.whole_runs and is_visual.any()):
            return None
        n = len(is_visual)
        ends = torch.arange(n) + 1
        text = torch.where(is_visual, n, ends - 1)  # each token that ends a run before it
        run_ends = text.flip(0).cummin(0).values.flip(0)
        return start + torch.where(is_visual, run_ends, ends)

    def scopes(self, token_ids: Sequence[int], media: Sequence[MediaPlan]) -> list[Scope]:
        """Return which visual tokens a prompt's tokens attend to, where rows are kept; none without media."""
        return []

    def encode(self, patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Tensor:
        """Encode uint8 patches [N, row_bytes] into visual tokens [M, hidden].

        `units` says, in the order of the rows, how many whole units of which medium they are; the result for a
        unit does not depend on the others in the call.
        """
        raise TypeError(f"{type(self).__name__} has no vision encoder")

    def tail(self, plan: MediaPlan) -> Tensor:
        """Return the visual tokens at a medium's end that no unit has. They are [plan.tail_tokens, hidden]."""
        raise TypeError(f"{type(self).__name__} has no visual tokens without pixels")

    @torch.inference_mode()
    def visual_tokens(self, patches: Tensor, units: Sequence[tuple[MediaPlan, range]]) -> Tensor:
        """Encode, with the tail after the last unit of a medium; `units` says which of whose units the rows are."""
        whole_units = [(plan, len(part)) for plan, part in units]
        visual = self._encode_on_all(patches, whole_units) if self._leading else self.encode(patches, whole_units)
        if not any(plan.tail_tokens for plan, _ in units):
            return visual
        whole: list[Tensor] = []
        rows = torch.split(visual, [len(part) * plan.tokens_per_unit for plan, part in units])
        for (plan, part), own in zip(units, rows, strict=True):
            whole.append(own)
            if plan.tail_tokens and part.stop == plan.units:
                whole.append(self.tail(plan))
        return torch.cat(whole)

    def _encode_on_all(self, patches: Tensor, units: Sequence[tuple[MediaPlan, int]]) -> Tensor:
        """Do the same as `encode` on all ranks that share the encoder."""
        assert self._leading is not None
        layers = self._leading.layers(patches, units)
        while True:
            try:
                next(layers)
            except StopIteration as ended:
                visual: Tensor = ended.value
                return visual
            pause()

    def encode_layers(self, patches: Tensor, units: Sequence[tuple[MediaPlan, range]]) -> Generator[None, None, Tensor]:
        """Do the same as `visual_tokens`, and yield before each layer of the encoder."""
        return layer_by_layer(lambda: self.visual_tokens(patches, units))

    @torch.inference_mode()
    def embed(self, token_ids: Tensor, visual: Tensor | None, is_visual: Tensor) -> Tensor:
        """Embed token ids int64 [n] as [n, hidden]; where bool `is_visual` [n] holds, take `visual`'s rows in order.

        Token ids and `is_visual` are in host memory. With visual tokens wider than `hidden`, all rows are as wide:
        behind the embedding is what the first layers add to it, which is zero for text.
        """
        embeds: Tensor = self.language_model.get_input_embeddings()(self._told(token_ids))
        if visual is not None:
            embeds = functional.pad(embeds, (0, visual.shape[1] - embeds.shape[1]))
            places = self.device.upload(is_visual.nonzero()[:, 0])
            embeds.index_copy_(0, places, visual.to(embeds.dtype))
        return embeds

    @torch.inference_mode()
    def forward(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: KVCache) -> Tensor:
        """Return final hidden states [W, hidden] of a ragged batch's wanted tokens.

        `embeds` [T, width] are from `embed`, `positions` int64 [P, T] in host memory. All tokens' keys and values go
        into the cache.
        """
        return self._run(embeds, self._told(positions), batch, kv)

    def _told(self, host: Tensor) -> Tensor:
        """Return what the layers are told of a step: on the device, but where each rank uploads what it is told."""
        return host if self.part else self.device.upload(host)

    def run_modules(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: KVCache) -> Tensor:
        """Run a step by the modules of transformers, as a `StepRunner`."""
        states = kv.states(batch)
        hidden: Tensor = self.language_model(
            **self.layer_inputs(embeds),
            position_ids=positions[:, None] if positions.shape[0] > 1 else positions,
            use_cache=False,
            attention_step=self.device.kernels.attention(batch, kv),
            ragged_batch=batch,
            recurrent_states=states,
        ).last_hidden_state
        if states is not None:
            states.store()
        return hidden[0].index_select(0, self.device.upload(batch.wanted_rows))

    def layer_inputs(self, embeds: Tensor) -> dict[str, Any]:
        """Return embeddings [T, width] as arguments of transformers' text model."""
        return {"inputs_embeds": embeds[None]}

    def decoder(self, kv: KVPages, rows: int, tokens: int) -> Decoder | None:
        """Return the device's own decoder of so many sequences of so many tokens.

        None where a step of decode is one like all others.
        """
        if self.keeps_visual_rows or kv.state_pages:
            return None
        decoder = self.device.kernels.decoder(self.model, kv, rows, tokens, self.position_rows, self.part)
        return LeadingDecoder(decoder, self.part) if decoder and self.part and self.part.group.leads else decoder

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits float32 [k, vocab] of hidden states [k, hidden]; the next call may overwrite them."""
        if self._head is None:
            raise TypeError("a model that makes embeddings, or encodes alone, has no logits")
        return self._head(hidden)


def _decoder(model: Any) -> Any:
    """Return the text model without its head. Llama 4 alone does not name it as the others do."""
    decoder = model.get_decoder()
    return model.model if decoder is model else decoder


def _visual_ids(config: Any) -> frozenset[int]:
    ids = (getattr(config, name, None) for name in ("image_token_id", "video_token_id"))
    return frozenset(token for token in ids if token is not None)
