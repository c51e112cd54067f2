"""Several memories: pages that travel on one GPU, and between all that there are, beside those of one memory."""

from bench.gpu.figures import Figures
from bench.gpu.items.engine import CLIP, NO_CACHES, QUESTION
from bench.gpu.machine import carried_clip
from bench.gpu.seen import gpus_here
from bench.gpu.served import served

REPEATS = 3  # of the question; the first one compiles what is first used


def answers(figures: Figures, device: str) -> None:
    """Ask about a clip with one memory, two on one GPU, and one on each of two GPUs: answers must be the same."""
    places = ["vep+d", "vep@mem0,cuda:0+d@mem1,cuda:0" if device == "cuda" else "vep+d@mem1"]
    if device == "cuda" and gpus_here() > 1:
        places += ["vep@cuda:0+d@cuda:1", "ve@cuda:0+pd@cuda:1"]
    texts: dict[str, str] = {}
    for placement in places:
        arguments = ("--dtype", "float32", "--placement", placement, "--gpu-memory-utilization", "0.7")
        with served("", device, *(arguments if device == "cuda" else arguments[:4]), *NO_CACHES) as daemon:
            clip = daemon.upload(carried_clip(CLIP))
            asked = [daemon.ask(QUESTION, clip) for _ in range(REPEATS)]
        texts[placement] = str(asked[-1]["text"])
        figures.add(**{placement: {"seconds": [each["seconds"] for each in asked], "text": texts[placement]}})
    if other := [placement for placement, text in texts.items() if text != texts[places[0]]]:
        raise RuntimeError(f"the answer is another one with {', '.join(other)}")
