"""The vision encoder's time beside transformers' tower and beside its matrix products alone.

The tower has 98 M random parameters (depth 12, hidden 768), as the half-billion checkpoint of bench/serve_cpu. Inputs
are what a server gets for 64 frames of 640x360 at up to 50,176 pixels a frame, and for an image of a megapixel. "Ours
in int8" has matrices of 8 bits, as --vision-quantization int8 makes them; how many images a second it encodes for each
of ours is saved as `int8_speedup`. The floor is torch.mm over the same shapes, in the same dtype: no bias, no
attention, nothing between; the second floor adds attention's two products by torch.bmm. Rounds take turns; a figure is
the median, a ratio the median of the rounds' ratios. On a machine that does other things, too, --clock cpu --threads 1
still tells the ratios.

    python bench/encoder.py --json bench/results/encoder.json
"""

import copy
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from flashcodec import PatchLayout
from unifiedserve.device import CPU
from unifiedserve.device.cpu.matrix import Matrix
from unifiedserve.device.cpu.modules import PanelLinear, in_panels
from unifiedserve.device.cpu.panels import by_panel, to_panels
from unifiedserve.doctor.machine import describe_machine
from unifiedserve.engine.weight_source import tower_scheme
from unifiedserve.messages.media import MediaKind, MediaPlan
from unifiedserve.models.families.qwen2_5_vl.rules import MediaRules, resized
from unifiedserve.models.families.qwen2_5_vl.vision_layout import Geometry, Run, unit_layout, window_layout
from unifiedserve.models.families.qwen2_5_vl.vision_tower import VisionTower
from unifiedserve.models.hub import load_transformers
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import fitting

VISION = {
    "depth": 12,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_heads": 12,
    "out_hidden_size": 896,
    "window_size": 112,
    "fullatt_block_indexes": [2, 5, 8, 11],
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
RULES = MediaRules(min_pixels=56 * 56, max_pixels=50_176)
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
UNITS_A_STEP = (1, 2, 3, 4, 6, 8, 16, 32)

Work = list[tuple[MediaPlan, int]]
Clock = Callable[[], float]
Measured = dict[str, list[float]]


def medium(kind: MediaKind, height: int, width: int, max_pixels: int, units: int) -> MediaPlan:
    rows, columns = resized(height, width, 28, RULES.min_pixels, max_pixels)
    patches = rows * columns // 14**2
    layout = PatchLayout(rows, columns, 14, 2, 2)
    return MediaPlan(kind=kind, layout=layout, units=units, patches_per_unit=patches, tokens_per_unit=patches // 4)


VIDEO = medium("video", 360, 640, RULES.max_pixels, 32)
IMAGE = medium("image", 1000, 1000, 1 << 20, 1)


def make_tower(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    config = load_transformers().Qwen2_5_VLConfig(vision_config=VISION).vision_config
    module = importlib.import_module("transformers.models.qwen2_5_vl.modeling_qwen2_5_vl")
    tower = module.Qwen2_5_VisionTransformerPretrainedModel._from_config(config, dtype=dtype)
    return tower.eval().requires_grad_(False)


def laid_out(tower: Any, layer: Callable[[Any, str], Any] = lambda module, name: in_panels(module)) -> Any:
    """Return a copy whose linear layers have their weights in panels, as a server has them."""
    ours = copy.deepcopy(tower)
    for name, module in list(ours.named_modules()):
        if isinstance(module, torch.nn.Linear):
            ours.set_submodule(name, layer(module, f"visual.{name}.weight"))
    return ours


def in_codes(module: Any, name: str) -> PanelLinear:
    """Return a linear layer whose weights are codes of 8 bits, as --vision-quantization int8 makes them."""
    wanted = tower_scheme(8, name)
    scheme = wanted and fitting(wanted, module.in_features)
    assert scheme, name
    codes, scales, zeros, _ = quantize(module.weight, scheme)
    tables = (by_panel(table.half()) for table in (scales, zeros))
    return PanelLinear(Matrix(to_panels(codes), *module.weight.shape, *tables), module.bias)


class Floor:
    """The tower's matrix products for a number of patches."""

    def __init__(self, tower: Any) -> None:
        self._tower = tower
        self._inputs: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, patches: int) -> None:
        tower = self._tower
        weights = [tower.patch_embed.proj.weight.flatten(1)]
        for block in tower.blocks:
            mlp = block.mlp
            layers = block.attn.qkv, block.attn.proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj
            weights += [layer.weight for layer in layers]
        for weight in weights:
            torch.mm(self._random(patches, weight.shape[1]), weight.t())
        for layer in (tower.merger.mlp[0], tower.merger.mlp[2]):
            torch.mm(self._random(patches // 4, layer.in_features), layer.weight.t())

    def with_attention(self, plan: MediaPlan) -> None:
        """Compute the tower's products and attention's two, a bounded number of scores at once."""
        self(plan.patches)
        config = self._tower.config
        heads, head_dim = config.num_heads, config.hidden_size // config.num_heads
        run = Run(*plan.grid[1:], plan.units)
        geometry = Geometry(2, config.window_size // 28, head_dim, 10_000.0)
        windows, whole = window_layout([run], geometry), unit_layout([run], geometry)
        for number in range(config.depth):
            for _, sequences, length in (whole if number in config.fullatt_block_indexes else windows).groups:
                queries = max(1, min(length, (1 << 21) // length))
                batch = max(1, (1 << 21) // length**2)
                tokens = self._random(min(batch, sequences * heads), length, head_dim)
                for _ in range(-(-sequences * heads // batch)):
                    for _ in range(-(-length // queries)):
                        scores = torch.bmm(tokens[:, :queries], tokens.transpose(1, 2))
                        torch.bmm(scores, tokens)

    def flops(self, patches: int) -> float:
        blocks = sum(p.numel() for p in self._tower.blocks.parameters() if p.dim() == 2)
        merger = sum(p.numel() for p in self._tower.merger.parameters() if p.dim() == 2)
        weights: int = self._tower.patch_embed.proj.weight.numel() + blocks + merger // 4
        return 2.0 * patches * weights

    def _random(self, *shape: int) -> Tensor:
        if shape not in self._inputs:
            self._inputs[shape] = torch.randn(shape).to(self._tower.dtype)
        return self._inputs[shape]


def contestants(tower: Any, plan: MediaPlan, units_a_step: int) -> dict[str, Callable[[], object]]:
    """Return the ways to encode all of a medium; `units_a_step` is for ours in steps, as the server takes them."""
    rules: dict[MediaKind, tuple[Tensor, Tensor]] = {
        "image": RULES.normalisation(),
        "video": RULES.normalisation(),
    }
    ours = VisionTower(laid_out(tower), rules, CPU)
    in_8_bits = VisionTower(laid_out(tower, in_codes), rules, CPU)
    floor = Floor(tower)
    patches = torch.randint(0, 256, (plan.patches, RULES.row_bytes), dtype=torch.uint8)
    mean, deviation = RULES.normalisation()
    pixels = ((patches - mean) / deviation).to(tower.dtype)
    grid = torch.tensor([plan.grid])
    rows = units_a_step * plan.patches_per_unit

    def in_steps() -> None:
        for part in torch.split(patches, rows):
            ours(part, [(plan, len(part) // plan.patches_per_unit)])

    return {
        "transformers": lambda: tower(pixels, grid_thw=grid),
        "ours": lambda: ours(patches, [(plan, plan.units)]),
        "ours in int8": lambda: in_8_bits(patches, [(plan, plan.units)]),
        "ours in steps": in_steps,
        "floor": lambda: floor(plan.patches),
        "floor with attention": lambda: floor.with_attention(plan),
    }


def measure(runs: dict[str, Callable[[], object]], rounds: int, clock: Clock) -> Measured:
    seconds: Measured = {name: [] for name in runs}
    for number in range(-1, rounds):  # the first round warms up
        for name, run in runs.items():
            begin = clock()
            run()
            if number >= 0:
                seconds[name].append(clock() - begin)
    return seconds


def ratio(seconds: Measured, name: str, to: str) -> float:
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def compare(
    console: Console, tower: Any, plan: MediaPlan, title: str, steps: int, rounds: int, clock: Clock
) -> dict[str, Any]:
    seconds = measure(contestants(tower, plan, steps), rounds, clock)
    flops = Floor(tower).flops(plan.patches)
    table = Table(title=f"{title}: {plan.patches} patches, {plan.tokens} tokens, {flops / 1e12:.2f} TFLOP")
    for column in (str(tower.dtype), "ms", "min-max", "to the floor", "of transformers"):
        table.add_column(column, justify="right")
    rows = {}
    for name, times in seconds.items():
        to_floor, of_theirs = ratio(seconds, name, "floor"), ratio(seconds, name, "transformers")
        rows[name] = {"seconds": times, "to_floor": to_floor, "of_transformers": of_theirs}
        spread = f"{min(times) * 1e3:.0f}-{max(times) * 1e3:.0f}"
        table.add_row(name, f"{statistics.median(times) * 1e3:.0f}", spread, f"{to_floor:.2f}", f"{of_theirs:.2f}")
    console.print(table)
    found = {"plan": title, "dtype": str(tower.dtype), "units_a_step": steps, "flop": flops, "results": rows}
    return found | {"int8_speedup": ratio(seconds, "ours", "ours in int8")}


def sweep(console: Console, tower: Any, plan: MediaPlan, rounds: int, clock: Clock) -> list[dict[str, float]]:
    """Measure steps of so many units, and what that makes a second."""
    ours = VisionTower(laid_out(tower), {"image": RULES.normalisation(), "video": RULES.normalisation()}, CPU)
    patches = torch.randint(0, 256, (plan.patches, RULES.row_bytes), dtype=torch.uint8)
    runs: dict[str, Callable[[], object]] = {}
    for units in UNITS_A_STEP:
        part = patches[: units * plan.patches_per_unit]
        runs[str(units)] = lambda part=part, units=units: ours(part, [(plan, units)])  # type: ignore[misc]
    table = Table(title=f"Steps of temporal groups of {plan.tokens_per_unit} tokens, {tower.dtype}")
    for column in ("tokens a step", "ms a step", "tokens/s"):
        table.add_column(column, justify="right")
    rows = []
    for name, times in measure(runs, rounds, clock).items():
        tokens, median = int(name) * plan.tokens_per_unit, statistics.median(times)
        rows.append({"tokens": tokens, "seconds": median, "tokens_per_second": tokens / median})
        table.add_row(str(tokens), f"{median * 1e3:.0f}", f"{tokens / median:.0f}")
    console.print(table)
    return rows


def main(
    rounds: Annotated[int, typer.Option(help="Interleaved rounds")] = 7,
    threads: Annotated[int, typer.Option(help="Of torch")] = 2,
    steps: Annotated[int, typer.Option(help="Temporal groups a step in `ours in steps`")] = 4,
    clock: Annotated[Literal["wall", "cpu"], typer.Option(help="Time as it passes, or the process's")] = "wall",
    dtypes: Annotated[str, typer.Option(help="Comma-separated")] = "bfloat16,float32",
    json_file: Annotated[Path, typer.Option("--json", help="Where to save the figures")] = Path(
        "bench/results/encoder.json"
    ),
) -> None:
    """Compare the vision encoder with transformers' and with its matrix products."""
    console = Console()
    torch.set_num_threads(threads)
    comparisons, sweeps = [], {}
    with torch.inference_mode():
        for dtype in dtypes.split(","):
            tower = make_tower(getattr(torch, dtype))
            comparisons.append(compare(console, tower, VIDEO, "64 frames of 640x360", steps, rounds, CLOCKS[clock]))
            comparisons.append(compare(console, tower, IMAGE, "an image of a megapixel", steps, rounds, CLOCKS[clock]))
            sweeps[dtype] = sweep(console, tower, VIDEO, rounds, CLOCKS[clock])
    json_file.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "command": " ".join(["python", *sys.argv]),
        "machine": describe_machine(),
        "threads": threads,
        "clock": clock,
        "comparisons": comparisons,
        "steps": sweeps,
    }
    json_file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
