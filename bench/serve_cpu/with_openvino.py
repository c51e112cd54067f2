"""OpenVINO GenAI on the same numbers of tokens, in a process without a server: `python with_openvino.py FILE SETUP`.

Its own environment's Python runs it. SETUP is JSON: the workloads and the sizes. It prints as offline.py does.
"""

import itertools
import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

CACHE_GIB = 2
CHUNK = 512  # tokens of a step
PROMPTS = 5  # long ones
LOWEST, HIGHEST = 100, 400  # token ids of prompts: words of any tokenizer


class Texts:
    """Answer prompts of random tokens."""

    def __init__(self, file: str) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_batched_tokens = CACHE_GIB, CHUNK
        scheduler.enable_prefix_caching = False
        self._pipeline = genai.ContinuousBatchingPipeline(file, scheduler, "CPU")
        self._numbers = itertools.count()
        self._random = np.random.default_rng(0)

    def answer(self, count: int, prompt: int, tokens: int) -> tuple[float, list[list[float]]]:
        """Return when so many texts were asked for at once, and when the tokens of each arrived."""
        config = genai.GenerationConfig(max_new_tokens=tokens)
        config.ignore_eos = True
        begin = time.perf_counter()
        handles = []
        for _ in range(count):
            ids = self._random.integers(LOWEST, HIGHEST, (1, prompt), dtype=np.int64)
            handles.append(self._pipeline.add_request(next(self._numbers), openvino.Tensor(ids), config))
        arrivals: list[list[float]] = [[] for _ in handles]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            now = time.perf_counter()
            for own, handle in zip(arrivals, handles, strict=True):
                while handle.can_read():
                    own += [now] * sum(len(output.generated_ids) for output in handle.read().values())
        return begin, arrivals


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


def decode(texts: Texts, setup: dict[str, Any]) -> dict[str, Any]:
    begin, (times,) = texts.answer(1, setup["prompt"], setup["alone"])
    return {"tbt": statistics.median(gaps(times)), "ttft": times[0] - begin, "prompt_tokens": setup["prompt"]}


def prompt(texts: Texts, setup: dict[str, Any]) -> dict[str, Any]:
    """Measure long prompts, one after the other."""
    firsts = []
    for _ in range(PROMPTS):
        begin, (times,) = texts.answer(1, setup["long"], 2)
        firsts.append(times[0] - begin)
    return {"ttft": statistics.median(firsts), "prompt_tokens": setup["long"]}


def streams(texts: Texts, setup: dict[str, Any]) -> dict[str, Any]:
    """Measure texts at once, by their number: the rate from when all have begun until the first one ends."""
    found: dict[str, Any] = {"prompt_tokens": setup["prompt"] // 2}
    for count in setup["at_a_time"]:
        _, arrivals = texts.answer(count, setup["prompt"] // 2, setup["stream"])
        begun, ended = max(times[0] for times in arrivals), min(times[-1] for times in arrivals)
        within = [[moment for moment in times if begun <= moment <= ended] for times in arrivals]
        came = sum(sum(moment > begun for moment in times) for times in within)
        found |= {
            f"tokens{count}": came / (ended - begun),
            f"tbt{count}": statistics.median(gap for times in within for gap in gaps(times)),
        }
    return found


def main() -> None:
    """Run the workloads of SETUP."""
    file, setup = sys.argv[1], json.loads(sys.argv[2])
    texts = Texts(file)
    texts.answer(1, setup["prompt"], 4)  # warm up
    for name in setup["workloads"]:
        workload = {"decode": decode, "prompt": prompt, "streams": streams}[name]
        print(json.dumps({name: workload(texts, setup)}), flush=True)


if __name__ == "__main__":
    main()
