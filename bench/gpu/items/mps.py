"""Clients of MPS: whose memory they see, whether they compute at once, and whom a fault or a kill takes along."""

import statistics
import time
from pathlib import Path

from bench.gpu.figures import Figures
from bench.gpu.mps_daemon import mps_daemon
from bench.gpu.partner import Partner, outcome

CLIENT = "bench.gpu.gpu_client:GpuClient"
MIB = 2**20
SIZE = 64 * MIB
WORD, OTHER = 0x5EED0020, 0x5EED0021
CALIBRATION, WANTED_MS = 1 << 20, 300.0
RECOVERY = 30.0  # seconds until a new client must work again


def memory(figures: Figures) -> None:
    """Share memory across MPS' border in every direction."""
    with mps_daemon(Path("mps").resolve()) as mps:
        for owner_in, importer_in in ((False, False), (False, True), (True, False), (True, True)):
            name = f"{_side(owner_in)}_to_{_side(importer_in)}"
            with (
                Partner(CLIENT, mps if owner_in else None) as owner,
                Partner(CLIENT, mps if importer_in else None) as other,
            ):
                figures.add(**{name: outcome(_shared, owner, other)})


def overlap(figures: Figures) -> None:
    """Have two processes compute one thread each, alone and together: time slices take twice as long."""
    with Partner(CLIENT) as a, Partner(CLIENT) as b:
        figures.add(without_mps=_slowdown(a, b))
    with mps_daemon(Path("mps").resolve()) as mps, Partner(CLIENT, mps) as a, Partner(CLIENT, mps) as b:
        figures.add(with_mps=_slowdown(a, b))


def fault(figures: Figures) -> None:
    """Let one client of MPS fault: what the other sees, what becomes of memory owned outside, when MPS works again."""
    with Partner(CLIENT) as owner, mps_daemon(Path("mps").resolve()) as mps:
        owner.start()
        owner.allocate("m", SIZE)
        owner.fill("m", WORD)
        handle = owner.export("m")
        with Partner(CLIENT, mps) as faulty, Partner(CLIENT, mps) as other:
            for client in (faulty, other):
                client.start()
                client.open("m", handle, SIZE)
                client.work(CALIBRATION)
            figures.add(faulty=outcome(faulty.fault))
            figures.add(other=outcome(other.work, CALIBRATION))
            figures.add(memory_survives=outcome(owner.holds, "m", WORD))
            with Partner(CLIENT, mps, patience=10) as early:
                figures.add(new_client_beside_them=outcome(early.start))
        start = time.monotonic()
        figures.add(new_client_sees_memory=_until_it_works(mps, handle))
        figures.add(recovered_after_s=time.monotonic() - start, memory_survives_recovery=owner.holds("m", WORD))


def kill(figures: Figures) -> None:
    """Kill clients of MPS, an idle and a busy one, beside another that computes."""
    with Partner(CLIENT) as owner, mps_daemon(Path("mps").resolve()) as mps:
        owner.start()
        owner.allocate("m", SIZE)
        owner.fill("m", WORD)
        handle = owner.export("m")
        for state in ("idle", "busy"):
            with Partner(CLIENT, mps) as victim, Partner(CLIENT, mps) as other:
                for client in (victim, other):
                    client.start()
                    client.open("m", handle, SIZE)
                steps = _steps(other)
                victim.work(CALIBRATION)
                working = other.begin("work", 4 * steps)
                if state == "busy":
                    victim.begin("work", 4 * steps)
                    time.sleep(0.2)  # its kernel runs by then
                victim.kill()
                figures.add(**{f"{state}_other_ms": outcome(working)})
                figures.add(**{f"{state}_other_goes_on": outcome(other.work, steps)})
                figures.add(**{f"{state}_memory_survives": outcome(owner.holds, "m", WORD)})
            figures.add(**{f"{state}_new_client": _until_it_works(mps, handle)})


def _shared(owner: Partner, importer: Partner) -> bool:
    owner.start(), importer.start()
    owner.allocate("m", SIZE)
    owner.fill("m", WORD)
    importer.open("m", owner.export("m"), SIZE)
    seen = importer.holds("m", WORD)
    importer.fill("m", OTHER)
    return bool(seen and owner.holds("m", OTHER))


def _new_client(mps: dict[str, str], handle: str) -> bool:
    with Partner(CLIENT, mps, patience=10) as client:
        client.start()
        client.open("m", handle, SIZE)
        return bool(client.holds("m", WORD))


def _slowdown(a: Partner, b: Partner) -> float:
    """Return how much longer work takes beside another process's: 1 if both run at once, 2 if they take turns."""
    a.start(), b.start()
    steps = _steps(a)
    b.work(CALIBRATION)
    ratios = []
    for _ in range(3):
        alone = a.work(steps)
        waiting = [partner.begin("work", steps) for partner in (a, b)]
        ratios.append(max(wait() for wait in waiting) / alone)
    return float(statistics.median(ratios))


def _steps(partner: Partner) -> int:
    """Return how many steps take about as long as wanted."""
    partner.work(CALIBRATION)
    once: float = partner.work(CALIBRATION)
    return min(int(CALIBRATION * WANTED_MS / once), 2**31)


def _until_it_works(mps: dict[str, str], handle: str) -> object:
    end = time.monotonic() + RECOVERY
    while isinstance(result := outcome(_new_client, mps, handle), str) and time.monotonic() < end:
        time.sleep(0.5)
    return result


def _side(inside: bool) -> str:
    return "client" if inside else "outsider"
