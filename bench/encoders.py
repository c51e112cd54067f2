"""How soon the first token about one video comes with several encoders, simulated from costs that were measured.

EPD's Fig. 5: the units of one request are spread over all encoders, or (--irp off) one has all of them. The machine has
eight cores as fast as those of the measurement: one decodes the video, each encoder has one, two prefill, one decodes.

    python bench/encoders.py
"""

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from unifiedserve.messages.ticket import Ticket
from unifiedserve.placement import Placement, read_placement
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, Cores, FreePages, Simulator, StageCosts

RESULTS = Path(__file__).parent / "results"
CORES, ENCODERS = 8, (1, 2, 3, 4)
DEARER = (1, 4)  # times the encoder that was measured
FRAMES, SECONDS = 128, 64  # of the video, which has two frames a unit
TEXT = 40  # tokens around it
BUDGET = Budget(prefill_tokens=512, encode_tokens=512, max_running=64, kv_page_tokens=16)


def measured(path: Path) -> StageCosts:
    """Return the costs of a run of `bench/simulator.py`, as they would be with all cores of the simulated machine."""
    found = json.loads(path.read_bytes())
    means = {name: sum(costs[name] for costs in found["costs"]) / len(found["costs"]) for name in found["costs"][0]}
    faster = int(found["machine"]["cores"]) / CORES
    for name in ("encode_batch", "visual_token", "prefill_pass", "prompt_token", "prompt_context", "decode_pass"):
        means[name] *= faster
    return msgspec.convert(means | {"encoder_layers": 1}, StageCosts, strict=False)


def placed(encoders: int, *, irp: bool) -> Placement:
    parts = "v@0+" + "".join(f"e@{core}+" for core in range(1, 1 + encoders)) + "p@5-6+d@7"
    return msgspec.structs.replace(read_placement(parts, range(CORES)), irp=irp)


def first_token(encoders: int, tokens: int, costs: StageCosts, *, irp: bool) -> float:
    """Return the seconds to the first token about a video of so many visual tokens a unit, which comes alone."""
    units = FRAMES // 2
    gaps = [TEXT // 2, *[0] * (units - 1), TEXT // 2]
    decode = costs.video_second * SECONDS / units
    video = Arrival(Ticket(1, 0.0), gaps, [tokens] * units, 1, decode, gop=max(1, units // 8), media=1)
    simulator = Simulator(
        placed(encoders, irp=irp),
        BUDGET,
        FreePages(100_000, 100_000, 100_000),
        [video],
        costs,
        Cores(CORES, costs.waste),
    )
    simulator.run()
    return simulator.tokens[1][0]


def dearer(costs: StageCosts, times: float) -> StageCosts:
    """Return the costs with an encoder that is so many times dearer for each visual token."""
    return msgspec.structs.replace(
        costs, visual_token=costs.visual_token * times, encode_batch=costs.encode_batch * times
    )


def main(
    tokens: Annotated[int, typer.Option(help="visual tokens of a unit, which are two frames")] = 64,
    costs: Annotated[Path, typer.Option(help="a JSON of bench/simulator.py")] = RESULTS / "simulator.json",
    out: Annotated[Path, typer.Option(help="where to save the JSON")] = RESULTS / "encoders.json",
) -> None:
    """Simulate one video of 128 frames with one to four encoders.

    The costs measured are those of an encoder of 4 patches a visual token, also taken four times: MiniCPM-V, which EPD
    measured, has 16.
    """
    own, points = measured(costs), []
    table = Table("patches a token", "encoders", "--irp on, s", "times less", "--irp off, s")
    for times in DEARER:
        alone = first_token(1, tokens, dearer(own, times), irp=True)
        for count in ENCODERS:
            on, off = (first_token(count, tokens, dearer(own, times), irp=irp) for irp in (True, False))
            points.append({"patches_a_token": 4 * times, "encoders": count, "irp": on, "one_encoder": off})
            table.add_row(str(4 * times), str(count), f"{on:.1f}", f"{alone / on:.2f}", f"{off:.1f}")
    Console().print(table)
    found = {"command": "python bench/encoders.py", "costs": msgspec.to_builtins(own), "first_token_seconds": points}
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
