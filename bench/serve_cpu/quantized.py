"""Make a checkpoint again with the language model's matrices in 8 or 4 bits, as compressed-tensors stores them.

    python bench/serve_cpu/quantized.py CHECKPOINT int8|int4 DIRECTORY

int8: W8A8, a scale for each output, activations by token; int4: W4A16 in groups of 128. Rounded to nearest, symmetric.
The head, the embedding and the vision tower stay as they are, so that all servers that read it compute the same.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from safetensors.torch import load_file, save_file
from torch import Tensor

Kind = Literal["int8", "int4"]
MATRIX = re.compile(r"model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight")
GROUP = 128
IGNORED = ["lm_head", "re:.*visual.*"]


def to_int8(name: str, weight: Tensor) -> dict[str, Tensor]:
    scales = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scales).round().clamp(-127, 127).to(torch.int8)
    return {f"{name}.weight": codes, f"{name}.weight_scale": scales.to(torch.bfloat16)}


def to_int4(name: str, weight: Tensor) -> dict[str, Tensor]:
    groups = weight.view(len(weight), -1, GROUP)
    scales = groups.abs().amax(-1, keepdim=True) / 7
    codes = ((groups / scales).round().clamp(-8, 7) + 8).to(torch.int64).view(len(weight), -1, 8)
    packed = (codes << torch.arange(0, 32, 4)).sum(-1)
    return {
        f"{name}.weight_packed": (packed - ((packed >> 31) << 32)).to(torch.int32),
        f"{name}.weight_scale": scales[..., 0].to(torch.bfloat16),
        f"{name}.weight_shape": torch.tensor(weight.shape),
    }


def weights_config(bits: int) -> dict[str, Any]:
    strategy = {"strategy": "channel"} if bits == 8 else {"strategy": "group", "group_size": GROUP}
    return {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, **strategy}


def config(kind: str) -> dict[str, Any]:
    activations = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": "int-quantized" if kind == "int8" else "pack-quantized",
        "ignore": IGNORED,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights_config(8 if kind == "int8" else 4),
                "input_activations": activations if kind == "int8" else None,
            }
        },
    }


def make(checkpoint: Path, kind: str, directory: Path) -> Path:
    """Write the checkpoint."""
    shutil.copytree(checkpoint, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    quantize: Callable[[str, Tensor], dict[str, Tensor]] = to_int8 if kind == "int8" else to_int4
    stored: dict[str, Tensor] = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        matrix = MATRIX.fullmatch(name)
        stored |= quantize(name.removesuffix(".weight"), tensor.float()) if matrix else {name: tensor}
    described = json.loads((checkpoint / "config.json").read_text()) | {"quantization_config": config(kind)}
    (directory / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    complete = directory / "model.partial"
    save_file(stored, complete, metadata={"format": "pt"})
    return complete.replace(directory / "model.safetensors").parent


def main(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint in one file")],
    kind: Annotated[Kind, typer.Argument(help="int8 or int4")],
    directory: Annotated[Path, typer.Argument(help="Where the files go; made if needed")],
) -> None:
    """Make the quantised checkpoint."""
    make(checkpoint, kind, directory)


if __name__ == "__main__":
    typer.run(main)
