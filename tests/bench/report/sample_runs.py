"""Runs as a server might have answered them, drawn at random, the same for the same seed."""

import itertools
import random

from unifiedserve.bench.records import Phase, Record, Run

KINDS = {"text": (0.3, 0.0, 5), "image": (0.8, 0.0, 3), "video 1 min": (4.0, 60.0, 2), "video 8 min": (14.0, 480.0, 1)}


def make_run(name: str, requests: int, rate: float = 1.0, *, slow: float = 1.0, seed: int = 0, tokens: int = 60) -> Run:
    """Return a run of a mixed workload with Poisson arrivals; everything takes `slow` times as long."""
    draw = random.Random(seed)
    dues = itertools.accumulate(draw.expovariate(rate) for _ in range(requests))
    records = [make_record(draw, number, due, slow * (1 + rate / 2), tokens) for number, due in enumerate(dues)]
    return Run(
        name=name,
        command=["unifiedserve", "bench", "--url", "http://127.0.0.1:8000", "--name", name],
        started="2026-11-23T12:00:00Z",
        seed=seed,
        url="http://127.0.0.1:8000",
        model="shapes & <b>colours</b>",
        workload="mixed",
        arrivals=f"poisson {rate:g}/s",
        versions={"unifiedserve": "0.1.0"},
        machine={"cpu": "a processor"},
        seconds=max((record.ended for record in records), default=0.0),
        records=records,
    )


def make_record(draw: random.Random, number: int, due: float, slow: float, tokens: int) -> Record:
    """Return a turn, whose tokens now and then stand still."""
    kind = draw.choices(list(KINDS), [weight for _, _, weight in KINDS.values()])[0]
    ttft, seconds, _ = KINDS[kind]
    first = due + ttft * slow * draw.lognormvariate(0, 0.4)
    gaps = [slow * (0.4 if draw.random() < 0.01 else 0.03 * draw.lognormvariate(0, 0.3)) for _ in range(tokens - 1)]
    times = list(itertools.accumulate([first, *gaps]))
    failed = draw.random() < 0.02
    shares: dict[Phase, float] = {"queue": 0.2, "analyse": 0.02, "vision": 0.3, "encode": 0.3, "prefill": 0.18}
    return Record(
        request=f"r{number}",
        kind=kind,
        due=due,
        sent=due + 0.001 * draw.random(),
        token_times=times[: tokens // 2] if failed else times,
        ended=times[tokens // 2] if failed else times[-1],
        prompt_tokens=100 + int(20 * seconds),
        video_seconds=seconds,
        text="red " * tokens,
        status=200,
        error="the connection was closed" if failed else None,
        right=draw.random() < 0.8 if seconds else None,
        phases={}
        if failed
        else {phase: share * (first - due) for phase, share in shares.items()} | {"decode": times[-1] - first},
    )
