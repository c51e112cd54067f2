"""Run layers with linear attention on ragged batches: Gated DeltaNet (arXiv:2412.06464) as in Qwen3.5."""

import importlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.attention import RaggedBatch
from unifiedserve.memory.recurrent_state import RecurrentStates


def number_layers(language_model: Any) -> None:
    """Number the layers with full attention as the KV cache counts them. The others take ragged batches then."""
    full = linear = 0
    for layer in language_model.layers:
        if hasattr(layer, "linear_attn"):
            layer.linear_attn = RaggedDeltaNet(layer.linear_attn, linear)
            linear += 1
        elif hasattr(layer, "self_attn"):
            layer.self_attn.layer_idx = full
            full += 1


class RaggedDeltaNet(torch.nn.Module):
    """Run the `number`-th linear attention of a model: transformers' `module` with states in `RecurrentStates`."""

    def __init__(self, module: Any, number: int) -> None:
        super().__init__()
        self.module: Any = module
        self._number = number
        functions: Any = importlib.import_module(type(module).__module__)
        self._activation = importlib.import_module("transformers.activations").ACT2FN[module.activation]
        self._one_by_one = functions.torch_recurrent_gated_delta_rule
        self._in_chunks = functions.torch_chunk_gated_delta_rule

    def forward(
        self, hidden_states: Tensor, ragged_batch: RaggedBatch, recurrent_states: RecurrentStates, **kwargs: Any
    ) -> Tensor:
        """Return [1, T, hidden] of the batch's T tokens, and advance the states."""
        module, hidden = self.module, hidden_states[0]
        mixed, gate = module.in_proj_qkv(hidden), module.in_proj_z(hidden)
        strength = module.in_proj_b(hidden).sigmoid()
        decay = -module.A_log.float().exp() * functional.softplus(module.in_proj_a(hidden).float() + module.dt_bias)
        out = hidden.new_empty(len(hidden), module.num_v_heads, module.head_v_dim)
        bounds = ragged_batch.qo_indptr.tolist()
        lengths = [last - first for first, last in pairwise(bounds)]
        singles = [i for i, length in enumerate(lengths) if length == 1]
        groups = [[i] for i, length in enumerate(lengths) if length > 1] + ([singles] if singles else [])
        for sequences in groups:
            rows = torch.cat([torch.arange(bounds[i], bounds[i + 1]) for i in sequences]).to(hidden.device)
            of_each = [part[rows].view(len(sequences), -1, part.shape[1]) for part in (mixed, strength, decay)]
            own = torch.tensor(sequences, device=hidden.device)
            out[rows] = self._advance(of_each, own, recurrent_states).flatten(0, 1)
        normed = module.norm(out.flatten(0, 1), gate.view(-1, module.head_v_dim))
        projected: Tensor = module.out_proj(normed.view(len(hidden), -1))
        return projected[None]

    def _advance(self, tokens: Sequence[Tensor], sequences: Tensor, states: RecurrentStates) -> Tensor:
        """Return [B, n, heads, value_dim] of n new tokens a sequence. Advances the states of the B sequences.

        The convolution's inputs are [B, n, channels], strength and decay [B, n, heads].
        """
        module, (mixed, strength, decay), n = self.module, tokens, tokens[0].shape[1]
        before = states.inputs[sequences, self._number].to(mixed.dtype)
        inputs = torch.cat([before, mixed.mT], dim=2)
        convolved = functional.conv1d(inputs, module.conv1d.weight, module.conv1d.bias, groups=inputs.shape[1])
        parts = torch.split(self._activation(convolved).mT, [module.key_dim, module.key_dim, module.value_dim], dim=2)
        dims = module.head_k_dim, module.head_k_dim, module.head_v_dim
        query, key, value = (part.reshape(*part.shape[:2], -1, dim) for part, dim in zip(parts, dims, strict=True))
        out, memory = (self._one_by_one if n == 1 else self._in_chunks)(
            query,
            key,
            value,
            g=decay,
            beta=strength,
            initial_state=states.memory[sequences, self._number],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        states.inputs[sequences, self._number] = inputs[:, :, n:].float()
        states.memory[sequences, self._number] = memory
        attended: Tensor = out
        return attended
