"""A vision encoder over rank processes: the bundled model answers as transformers does."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import reference
from checkpoints import find_checkpoint
from completions import BUNDLED
from daemon import Daemon
from media import Clip
from questions import TOKENS, answer, question
from reference import Reference

NAMES = ["1 image", "3 images", "image and video"]
CORES = len(os.sched_getaffinity(0))


def spread(encoder_ranks: str, ranks: int, stored: str) -> Any:
    """Return the parameters for a daemon whose ranks share the encoder, which is in what is `stored`."""
    options = {"tensor_parallel_size": ranks, "encoder_ranks": encoder_ranks, "dtype": "float32"}
    marks = [
        pytest.mark.daemon("ranks that share an encoder", **BUNDLED, **options),
        pytest.mark.skipif(ranks > CORES, reason=f"{ranks} ranks need as many cores"),
    ]
    return pytest.param(ranks, stored, marks=marks, id=encoder_ranks)


@pytest.fixture(scope="module")
def bundled_hf(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference.load(find_checkpoint(tmp_path_factory, "bundled"))


@pytest.mark.parametrize(("ranks", "stored"), [spread("dp2", 2, r"-mem0\n"), spread("dp3xtp2", 6, r"-mem0(-rank1)?\n")])
def test_the_tokens_are_those_of_generate(
    daemon: Daemon, clips: Callable[[int], Clip], bundled_hf: Reference, ranks: int, stored: str
) -> None:
    expected = {name: bundled_hf.generate(question(name, clips).case, TOKENS) for name in NAMES}
    assert {name: answer(daemon, question(name, clips)) for name in NAMES} == expected
    pids = daemon.engine.observation.worker_pids()
    encoding, decoding = (psutil.Process(pids[name]).children() for name in ("encode-prefill", "decode"))
    assert len(encoding) == ranks - 1
    assert all(maps(process, stored) for process in encoding)
    assert not maps(decoding[-1], stored)  # which has its part of the language model


def maps(process: psutil.Process, weights: str) -> bool:
    """Tell whether a process maps shared memory of a name."""
    return re.search(weights, Path(f"/proc/{process.pid}/maps").read_text()) is not None
