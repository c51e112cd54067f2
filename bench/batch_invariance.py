"""What one order of summation costs: steps by two variants of the kernels, in turn.

A variant is an instruction set ("amx", "avx512_bf16"; empty: the best one), or the path of another build's
`unifiedserve/_core*.so`. Each has a process of its own, which the other waits for; ratios are taken within a round,
figures are medians.

    OMP_WAIT_POLICY=PASSIVE python bench/batch_invariance.py --against OTHER

writes bench/results/batch-invariance.json.

With AMX, `--against avx512_bf16` compares few rows with the kernels that took them before.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results" / "batch-invariance.json"


class Case(NamedTuple):
    """So many sequences, their tokens in the cache, and the new ones of each."""

    rows: int
    past: int
    new: int


DECODE = [Case(rows, past, 1) for past in (512, 4096) for rows in (1, 2, 4, 8, 16, 32)]
PREFILL = [Case(1, past, new) for past in (0, 4096) for new in (512, 2048)]


def use(variant: str) -> None:
    """Compute with a variant of the kernels from now on; to be called before anything of them is imported."""
    if not variant.endswith(".so"):
        from unifiedserve import _core

        return _core.select_instruction_set(variant or _core.instruction_sets()[0])
    spec = importlib.util.spec_from_file_location("unifiedserve._core", variant)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{variant} is no extension module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return None


def serve(variant: str, threads: int, asked: Connection) -> None:
    """Answer each case and number of steps with their seconds, until there are no more."""
    use(variant)
    import torch
    from decoder_steps import DecoderSteps

    torch.set_num_threads(threads)
    steps = DecoderSteps()
    asked.send("ready")
    while (case := asked.recv()) is not None:
        asked.send(steps.seconds(*case))


@contextmanager
def serving(variant: str, threads: int) -> Iterator[Connection]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(variant, threads, theirs))
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
        ours.send(None)
    finally:
        process.join(10)
        process.kill()


def compare(case: Case, variants: Sequence[Connection], rounds: int, steps: int) -> dict[str, object]:
    """Return the medians of a case, and of the first variant's time to the second's."""
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for i in (0, 1) if number % 2 else (1, 0):
            variants[i].send((*case, steps))
            times[i].append(statistics.median(variants[i].recv()))
    ratios = [one / other for one, other in zip(*times, strict=True)]
    return {
        **case._asdict(),
        "seconds": [statistics.median(each) for each in times],
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(min(ratios), 4), round(max(ratios), 4)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="", help="what is measured")
    parser.add_argument("--against", required=True, help="what it is compared with")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5, help="of each variant in a round")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = []
    with (
        serving(options.variant, options.threads) as measured,
        serving(options.against, options.threads) as other,
    ):
        for case in [*DECODE, *PREFILL]:
            steps = options.steps if case.new == 1 else 1
            found.append(compare(case, (measured, other), options.rounds, steps))
            print(json.dumps(found[-1]), flush=True)
    from unifiedserve.doctor.machine import describe_machine

    about = {"machine": describe_machine(), "threads": options.threads, "rounds": options.rounds}
    kernels = {"variant": options.variant, "against": Path(options.against).name}
    options.out.write_text(json.dumps({**about, **kernels, "cases": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
