"""Read and write importance matrices: for each input of a matrix, the mean of its squares over a text.

The files are those of llama.cpp's imatrix tool. They hold a matrix's sums of squares, and the number of rows that were
summed, under its name in GGUF files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import Header
from unifiedserve.models.gguf.file import open_gguf
from unifiedserve.models.gguf.names import layer_of, matrix_names

_SUMS, _COUNTS = ".in_sum2", ".counts"
_KEYS = gguf.Keys.IMatrix


class Squares(NamedTuple):
    """Hold sums of squares of a matrix's inputs, float32 [inputs], over so many rows."""

    sums: Tensor
    rows: int


def write_importance(path: Path, squares: Mapping[str, Squares], text: str, chunk: int) -> None:
    """Write what was summed over chunks of a text, by the files' names of matrices. Raises OSError."""
    writer = _Writer(path, arch="")
    writer.add_type(gguf.GGUFType.IMATRIX)
    writer.add_array(_KEYS.DATASETS, [text])
    writer.add_uint32(_KEYS.CHUNK_COUNT, max(each.rows for each in squares.values()) // chunk)
    writer.add_uint32(_KEYS.CHUNK_SIZE, chunk)
    for name, (sums, rows) in sorted(squares.items()):
        writer.add_tensor(name + _SUMS, sums.numpy())
        writer.add_tensor(name + _COUNTS, np.array([rows], np.float32))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def read_importance(path: Path) -> dict[str, Tensor]:
    """Return means of squares, float32 [inputs], by the files' names of matrices.

    Those of experts are left out. Raises ConfigError for a file that is no importance matrix.
    """
    reader = open_gguf(path)
    kind = reader.get_field(gguf.Keys.General.TYPE)
    if kind is None or kind.contents() != gguf.GGUFType.IMATRIX:
        raise ConfigError(f"{path}: this GGUF file is no importance matrix; unifiedserve calibrate makes one")
    stored = {each.name: each for each in reader.tensors}
    found = {}
    for name in (each.removesuffix(_SUMS) for each in stored if each.endswith(_SUMS)):
        sums, counts = stored[name + _SUMS], stored.get(name + _COUNTS)
        if counts is None or sums.tensor_type != Kind.F32 or counts.tensor_type != Kind.F32:
            raise ConfigError(f"{path}: {name} has no sums and counts in float32, as importance matrices do")
        if counts.data.size == 1:
            found[name] = _means(path, name, torch.tensor(sums.data.ravel()), float(counts.data.item()))
    return found


def importance_of(path: Path, matrices: Sequence[Header], layers: int) -> dict[str, Tensor]:
    """Return what the file has of the importance of matrices' inputs, by their names.

    Raises ConfigError for another model's file.
    """
    stored, names = read_importance(path), matrix_names((each.name for each in matrices), layers)
    another = f"{path}: this importance matrix is another model's"
    if beyond := next((name for name in stored if layer_of(name) >= layers), None):
        raise ConfigError(f"{another}: it has {beyond}, but this one has {layers} layers")
    found = {each.name: stored[name] for each in matrices if (name := names.get(each.name)) in stored}
    if not found:
        some = ", ".join(sorted(names.values())[:2])
        raise ConfigError(f"{another}: it has none of this one's matrices ({some}, …)")
    for each in matrices:
        if each.name in found and len(found[each.name]) != each.shape[1]:
            wrong = f"{names[each.name]} has {len(found[each.name])} inputs"
            raise ConfigError(f"{another}: its {wrong}, {each.name} {each.shape[1]}")
    return found


class _Writer(gguf.GGUFWriter):
    def add_architecture(self) -> None:
        """Leave it out, because these files have none."""


def _means(path: Path, name: str, sums: Tensor, rows: float) -> Tensor:
    if not (bool((sums >= 0).all()) and bool(sums.isfinite().all()) and 0 <= rows < float("inf")):
        raise ConfigError(f"{path}: {name} has sums of squares that are no numbers or negative: make the file again")
    return sums / rows if rows else torch.ones_like(sums)
