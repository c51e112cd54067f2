"""Derive the budget of a worker's steps from the daemon's options."""

from dataclasses import replace

from unifiedserve.config import EngineConfig
from unifiedserve.scheduling.state import Budget

#: prompt tokens, and visual ones, that a GPU has in a step beside streams: fewer take as long, because of the launches
_LEAST_ON_GPU = 256
_WHOLE = 1 << 30  # tokens: all of every request
_ENOUGH = 256  # prompt tokens of a step that ends a prompt; with fewer the weights are read too often


def budget_of(config: EngineConfig, kv_pages: int, lone_step: float, *, rests: bool = True) -> Budget:
    """Return the budget over a cache of so many pages; `lone_step` are the seconds of a decode step alone (0: none).

    Where decode `rests` between its steps, that holds the default target, and what is measured holds one that is given;
    and there cores are shared, so that a full batch of the encoder is no better than a small one.
    """
    options = config.scheduling
    naive, order, published = options.naive, options.service_order, options.scheduling != "adaptive"
    slo_tbt = 0.0 if naive or options.no_pacing else options.seconds_between_tokens(lone_step)
    if options.scheduling == "prefill-encode":
        slo_tbt = 0.0  # bounds the other steps: decode, in a process of its own, does not rest
    budget = Budget(
        prefill_tokens=0 if naive else options.prefill_chunk_tokens,
        encode_tokens=_WHOLE if naive else options.encode_budget_tokens,
        max_running=options.max_running,
        kv_page_tokens=config.memory.kv_page_tokens,
        kv_reserve=int(config.memory.kv_growth_reserve * kv_pages),
        order=order,
        short_tokens=0 if order == "fcfs" else options.short_tokens,
        step_seconds=options.step_seconds,
        rest=options.rest_between_steps,
        stretch=options.stretch,
        stretch_joining=options.stretch_joining,
        slo_tbt=slo_tbt,
        holds=slo_tbt > 0 and not published and (options.slo_tbt > 0 or not rests),
        pace=options.pace,
        fills=published or not rests,
        overlap=not (naive or published or options.no_overlap),
        scheduling=options.scheduling,
        step_cap=options.step_cap,
        enough=_WHOLE if published else _ENOUGH,
    )
    return budget if rests else replace(budget, least_prompt=_LEAST_ON_GPU, least_visual=_LEAST_ON_GPU)
