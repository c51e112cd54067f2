"""Measure how large the inputs of a language model's matrices are, over a text."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unifiedserve.errors import ConfigError
from unifiedserve.models.gguf.importance import Squares
from unifiedserve.models.gguf.names import matrix_names
from unifiedserve.models.matrices import head_matrix, language_matrices

WINDOW = 512  # tokens that see each other


class Calibration:
    """Hold sums of squares of the inputs of a model's matrices.

    They are those that are quantised to 4 bits and that GGUF files have a name for.
    """

    def __init__(self, model: Any) -> None:
        """Take a generating model of transformers. Raises ConfigError if it has no such matrix."""
        self._decoder, layers = model.get_decoder(), model.config.get_text_config().num_hidden_layers
        wanted, head = language_matrices(model.config), head_matrix(model.config)
        linear = {_name(path): each for path, each in self._decoder.named_modules() if isinstance(each, nn.Linear)}
        self._linear = {name: each for name, each in linear.items() if wanted(name) and not head(name)}
        self._names = matrix_names(self._linear, layers)
        if not self._names:
            raise ConfigError(f"{model.config.name_or_path}: none of its matrices has a name in GGUF files")
        self._sums = {name: torch.zeros(self._linear[name].in_features) for name in self._names}
        #: names of matrices that are left out
        self.unnamed = sorted(self._linear.keys() - self._names.keys())
        self.rows = 0

    @torch.inference_mode()
    def run(self, tokens: Sequence[int]) -> Iterator[int]:
        """Run the model over all whole windows of tokens; yield the rows so far."""
        with ExitStack() as hooks:
            for name, sums in self._sums.items():
                handle = self._linear[name].register_forward_pre_hook(partial(_add_squares, sums))
                hooks.callback(handle.remove)
            for start in range(0, len(tokens) - WINDOW + 1, WINDOW):
                self._decoder(input_ids=torch.tensor([tokens[start : start + WINDOW]]), use_cache=False)
                self.rows += WINDOW
                yield self.rows

    def squares(self) -> dict[str, Squares]:
        """Return the sums by the names of matrices in GGUF files."""
        return {self._names[name]: Squares(sums, self.rows) for name, sums in self._sums.items()}


def _name(path: str) -> str:
    """Return the name that a matrix has in a language model of its own."""
    return f"model.{path.removeprefix('model.')}.weight"


def _add_squares(sums: Tensor, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    sums += inputs[0].flatten(0, -2).float().square().sum(0)
