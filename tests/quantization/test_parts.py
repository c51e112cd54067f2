"""Parts of quantised weights: their values are those of the whole, and no more is read than they need."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from stored_weights import AWQ, GPTQ, Drawn, named
from torch import Tensor

from unifiedserve.memory.cut_tensors import CutTensors
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.quantization.matrix import QuantizedMatrix
from unifiedserve.quantization.read import QuantizedTensors
from unifiedserve.ranks.parts import Cut

OUTPUTS, INPUTS, GROUP = 64, 256, 32
DRAWN = Drawn(OUTPUTS, INPUTS, GROUP)
WHOLE = Drawn(OUTPUTS, INPUTS, INPUTS)
MIXED = Drawn(OUTPUTS, INPUTS, GROUP)
MIXED.group_of = MIXED.group_of[torch.randperm(INPUTS, generator=torch.Generator().manual_seed(0)).numpy()]
PACKED = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": GROUP}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [16, 32]}


def compressed(**changes: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": PACKED | changes}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


def packed(drawn: Drawn) -> dict[str, Tensor]:
    stored = drawn.gptq(version=2)
    return {
        "weight_packed": stored["qweight"].T,
        "weight_scale": stored["scales"].T,
        "weight_zero_point": stored["qzeros"].T,
        "weight_shape": torch.tensor([drawn.outputs, drawn.inputs]),
    }


def integers(drawn: Drawn) -> dict[str, Tensor]:
    codes, zeros = (torch.from_numpy(each - 128).to(torch.int8) for each in (drawn.codes, drawn.zeros))
    return {"weight": codes, "weight_scale": torch.from_numpy(drawn.scales), "weight_zero_point": zeros}


def float8(scale: Tensor) -> dict[str, Tensor]:
    values = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0))
    return {"weight": values.to(torch.float8_e4m3fn), "weight_scale_inv": scale}


FORMATS: dict[str, tuple[Mapping[str, Any], dict[str, Tensor]]] = {
    "awq": (AWQ, DRAWN.awq()),
    "awq of one group": (AWQ | {"group_size": -1}, WHOLE.awq()),
    "gptq": (GPTQ, DRAWN.gptq()),
    "gptq of one group": (GPTQ | {"group_size": -1}, WHOLE.gptq()),
    "gptq in any order": (GPTQ | {"desc_act": True}, MIXED.gptq()),
    "packed": (compressed(), packed(DRAWN)),
    "packed, of one group": (compressed(strategy="channel", group_size=None), packed(WHOLE)),
    "integers": (compressed(num_bits=8), integers(Drawn(OUTPUTS, INPUTS, GROUP, bits=8))),
    "fp8 in blocks": (BLOCKS, float8(torch.rand(4, 8) + 0.5)),
    "fp8 by output": (BLOCKS, float8(torch.rand(OUTPUTS) + 0.5)),
    "fp8 of one scale": (BLOCKS, float8(torch.tensor(0.5))),
}
CUTS = {
    "outputs": Cut(0, 16, 48),
    "last outputs": Cut(0, 56, 64),
    "outputs within a word": Cut(0, 3, 21),
    "inputs": Cut(1, 128, 256),
    "inputs within a group": Cut(1, 80, 176),
}


class Counting(SafetensorsFiles):
    """Count the bytes of what is read."""

    bytes_read = 0

    def loads(self) -> Iterator[tuple[str, Callable[[Cut | None], Tensor]]]:
        for name, load in super().loads():

            def counted(cut: Cut | None, load: Callable[[Cut | None], Tensor] = load) -> Tensor:
                tensor = load(cut)
                self.bytes_read += tensor.nbytes
                return tensor

            yield name, counted


def stored(folder: Path, tensors: Mapping[str, Tensor]) -> Counting:
    save_file({name: each.contiguous() for name, each in named("x", tensors).items()}, folder / "model.safetensors")
    return Counting(folder)


def values(read: Tensor | QuantizedMatrix) -> Tensor:
    return read.dequantize() if isinstance(read, QuantizedMatrix) else read


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_part_is_that_of_the_whole(tmp_path: Path, form: str, where: str) -> None:
    config, tensors = FORMATS[form]
    files, cut = stored(tmp_path, tensors), CUTS[where]
    source = QuantizedTensors(files, config)
    ((_, whole),) = source.read()
    read_of_whole, files.bytes_read = files.bytes_read, 0
    cutting = CutTensors(source, lambda name: True, lambda name: cut)
    (header,), ((_, part),) = cutting.headers(), cutting.read()
    assert torch.equal(values(part), cut.of(values(whole)))
    assert list(values(part).shape) == header.shape
    assert (part.scheme if isinstance(part, QuantizedMatrix) else None) == header.scheme
    unit = (16, 128)[cut.dim]  # the largest of words, groups and blocks here
    wide = cut.widened(unit, (OUTPUTS, INPUTS)[cut.dim])
    index = 8 * INPUTS  # and what is of the whole matrix
    assert files.bytes_read <= read_of_whole * wide.size // (OUTPUTS, INPUTS)[cut.dim] + index


def test_nothing_is_read_of_what_is_not_wanted(tmp_path: Path) -> None:
    save_file(
        {name: each.contiguous() for name, each in named("x", DRAWN.awq()).items()}, tmp_path / "model.safetensors"
    )
    files = Counting(tmp_path)
    assert list(CutTensors(QuantizedTensors(files, AWQ), lambda name: False, lambda name: None).read()) == []
    assert files.bytes_read == 0
