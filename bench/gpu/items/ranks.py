"""One model over two GPUs, beside the same model on one: the same answers, and how long they take."""

from bench.gpu.figures import Figures
from bench.gpu.items.engine import CLIP, NO_CACHES, QUESTION
from bench.gpu.machine import carried_clip
from bench.gpu.seen import gpus_here
from bench.gpu.served import served

RANKS = 2
REPEATS = 3  # of the question; the first one compiles what is first used
WAYS = {
    "one": (),
    "two": ("--tensor-parallel-size", str(RANKS)),
    "two, units of the encoder": ("--tensor-parallel-size", str(RANKS), "--encoder-ranks", f"dp{RANKS}"),
    "two, heads of the encoder": ("--tensor-parallel-size", str(RANKS), "--encoder-ranks", f"tp{RANKS}"),
}


def answers(figures: Figures, device: str) -> None:
    """Ask about a clip with one rank and with two: texts must be the same. Skipped where there is one GPU."""
    if device == "cuda" and (gpus := gpus_here()) < RANKS:
        figures.add(skipped=f"ranks have a GPU each, and {gpus} of {RANKS} are there")
        return
    limit = ("--gpu-memory-utilization", "0.7") if device == "cuda" else ()
    texts: dict[str, str] = {}
    for way, options in WAYS.items():
        with served("", device, "--dtype", "float32", *limit, *options, *NO_CACHES) as daemon:
            clip = daemon.upload(carried_clip(CLIP))
            asked = [daemon.ask(QUESTION, clip) for _ in range(REPEATS)]
        texts[way] = str(asked[-1]["text"])
        figures.add(**{way: {"seconds": [each["seconds"] for each in asked], "text": texts[way]}})
    if other := [way for way, text in texts.items() if text != texts["one"]]:
        raise RuntimeError(f"the answer is another one with {', '.join(other)}")
