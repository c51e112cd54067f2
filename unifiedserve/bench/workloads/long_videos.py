"""Make the set of long videos: a hundred, 95 of them at most 20 minutes long, with the same content in each codec."""

from pathlib import Path

import numpy as np

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.requests import Request, Text, Turn
from unifiedserve.bench.workloads.build import Workload, medium
from unifiedserve.bench.workloads.distributions import distribution
from unifiedserve.bench.workloads.media.recipes import Codec, Format, Video
from unifiedserve.bench.workloads.text import Writer

COUNT = 100
_SECONDS = distribution("lognormal:median=450,p95=1200")  # in all about 15 hours, 9 GB in H.264 of 640x360
_QUESTION, _ANSWER = 64, 64  # tokens


def long_videos(codec: Codec = "h264", seed: int = 0, width: int = 640, height: int = 360) -> list[Video]:
    """Return the videos' recipes: every percentile of the lengths once, in an order drawn with the seed."""
    seconds = _SECONDS.quantiles((np.arange(COUNT) + 0.5) / COUNT)
    shuffled = stream(seed, "long videos").permutation(seconds).tolist()
    return [Video(round(length), number, seed, Format(codec, width, height)) for number, length in enumerate(shuffled)]


def ask_all(codec: Codec, count: int, seed: int, writer: Writer, folder: Path) -> Workload:
    """Return a question about each of the first `count` videos."""
    videos = long_videos(codec, seed)[:count]
    requests = []
    for number, video in enumerate(videos):
        turn = Turn(parts=(medium(video, folder), Text(writer.text(number, _QUESTION))), max_tokens=_ANSWER)
        requests.append(Request(id=f"{seed}-{number}", kind="video", turns=(turn,)))
    return Workload(requests, list(videos))
