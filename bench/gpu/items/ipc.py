"""Memory of the GPU between processes: what opening costs, what is opened, and what of it outlives whom."""

import statistics

from bench.gpu.figures import Figures
from bench.gpu.partner import Partner, outcome

CLIENT = "bench.gpu.gpu_client:GpuClient"
KIB, MIB, GIB = 2**10, 2**20, 2**30
WORD, OTHER = 0x5EED0010, 0x5EED0011
REPEATS = 5


def opening(figures: Figures) -> None:
    """Open and close allocations of several sizes, each a few times."""
    with Partner(CLIENT) as owner, Partner(CLIENT) as importer:
        owner.start(), importer.start()
        rows = []
        for size in (2 * MIB, 64 * MIB, GIB, 8 * GIB):
            owner.allocate("m", size)
            owner.fill("m", WORD)
            handle = owner.export("m")
            times = []
            for _ in range(REPEATS):
                opened = importer.open("m", handle, size)
                seen = importer.holds("m", WORD)
                times.append((opened, importer.close("m")))
            opens, closes = zip(*times, strict=True)
            rows.append(
                {
                    "mib": size // MIB,
                    "open_ms": statistics.median(opens),
                    "close_ms": statistics.median(closes),
                    "first_ms": opens[0],
                    "seen": seen,
                }
            )
            figures.add(sizes=rows)
            owner.free("m")


def blocks(figures: Figures) -> None:
    """Say what a handle of a small allocation opens, and whether two of one block can be open at once.

    `ipc_buffers` takes whole blocks of 2 MiB because a handle exports all of the block that an allocation lies in.
    """
    with Partner(CLIENT) as owner, Partner(CLIENT) as importer:
        owner.start(), importer.start()
        first, second = owner.allocate("a", 64 * KIB), owner.allocate("b", 64 * KIB)
        owner.fill("a", WORD), owner.fill("b", OTHER)
        figures.add(distance=second - first, exported=owner.block("a"))
        importer.open("a", owner.export("a"), 64 * KIB)
        figures.add(opened=importer.block("a"), first_seen=importer.holds("a", WORD))
        figures.add(second_opens=outcome(importer.open, "b", owner.export("b"), 64 * KIB))
        figures.add(second_seen=outcome(importer.holds, "b", OTHER))
        figures.add(opened_twice=outcome(importer.open, "c", owner.export("a"), 64 * KIB))
        figures.add(opened_by_its_owner=outcome(owner.open, "own", owner.export("a"), 64 * KIB))


def after_the_end(figures: Figures) -> None:
    """Look at memory that was freed, or whose owner was killed, while another process has it open."""
    for what in ("freed", "killed"):
        with Partner(CLIENT) as owner, Partner(CLIENT) as importer, Partner(CLIENT) as late:
            for partner in (owner, importer, late):
                partner.start()
            owner.allocate("m", 64 * MIB)
            owner.fill("m", WORD)
            handle = owner.export("m")
            importer.open("m", handle, 64 * MIB)
            before = late.memory_info()["free"]
            if what == "freed":
                owner.free("m")
            else:
                owner.kill()
            figures.add(**{f"{what}_still_read": outcome(importer.holds, "m", WORD)})
            opened_late = outcome(late.open, "m", handle, 64 * MIB)
            figures.add(**{f"{what}_opened_late": opened_late})
            closed = outcome(importer.close, "m")
            figures.add(**{f"{what}_closed": closed})
            figures.add(**{f"{what}_mib_given_back": (late.memory_info()["free"] - before) / MIB})
