"""Requests of mixtures and of traces: reproducible, of the shapes asked for, no two of them alike."""

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from unifiedserve.bench.arrivals.parse import Process
from unifiedserve.bench.arrivals.processes import Poisson
from unifiedserve.bench.arrivals.schedule import schedule
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.bench.requests import Medium, Request, Text
from unifiedserve.bench.workloads.build import Workload, build
from unifiedserve.bench.workloads.long_videos import ask_all, long_videos
from unifiedserve.bench.workloads.media.recipes import Image, Video
from unifiedserve.bench.workloads.mix import load, presets
from unifiedserve.bench.workloads.named import named, names
from unifiedserve.bench.workloads.replay import replay
from unifiedserve.bench.workloads.text import Estimate, Writer
from unifiedserve.errors import ConfigError

FOLDER = Path("media")
KIND = '[[kind]]\nname = "text"\nshare = 1\ntext_tokens = 100\noutput_tokens = 20\n'


def drawn(name: str, count: int, seed: int = 0) -> Workload:
    return build(load(name), count, seed, Writer(Estimate(), seed), FOLDER)


def texts(request: Request) -> list[str]:
    return [part.text for turn in request.turns for part in turn.parts if isinstance(part, Text)]


@pytest.mark.parametrize("name", presets())
def test_the_seed_alone_decides_to_the_byte(name: str) -> None:
    first, again = drawn(name, 30), drawn(name, 30)
    assert msgspec.json.encode(first.requests) == msgspec.json.encode(again.requests)
    assert first.media == again.media
    assert msgspec.json.encode(drawn(name, 30, seed=1).requests) != msgspec.json.encode(first.requests)


@pytest.mark.parametrize("name", presets())
def test_fewer_requests_are_the_first_of_more(name: str) -> None:
    assert drawn(name, 10).requests == drawn(name, 30).requests[:10]


@pytest.mark.parametrize("name", presets())
def test_nothing_is_shared_by_accident(name: str) -> None:
    workload = drawn(name, 100)
    openings = [tuple(text.split()[:3]) for request in workload.requests for text in texts(request)]
    assert len(set(openings)) == len(openings)
    paths = [part.path for r in workload.requests for t in r.turns for part in t.parts if isinstance(part, Medium)]
    assert len(set(paths)) == len(paths)
    assert paths == [str(FOLDER / recipe.name) for recipe in workload.media]
    assert len({request.id for request in workload.requests}) == 100


def test_kinds_come_in_their_shares() -> None:
    kinds = Counter(request.kind for request in drawn("mixed", 1500, seed=1).requests)
    shares = [kinds[kind] / 1500 for kind in ("text", "image", "video-1m", "video-8m")]
    assert shares == pytest.approx([0.6, 0.25, 0.1, 0.05], abs=0.03)


def test_what_is_drawn_is_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        KIND + 'images = 2\npixels = 100_000\nvideos = 1\nseconds = "8"\nsize = [320, 180]\ncodecs = ["vp9"]\n'
    )
    (request,) = drawn(str(path), 1).requests
    *media, text = request.turns[0].parts
    assert [part.kind for part in media if isinstance(part, Medium)] == ["image", "image", "video"]
    assert isinstance(text, Text)
    assert len(text.text.split()) == 100
    assert request.turns[0].max_tokens == 20
    *images, clip = drawn(str(path), 1).media
    assert all(isinstance(i, Image) and i.width * i.height == pytest.approx(100_000, rel=0.01) for i in images)
    assert isinstance(clip, Video)
    assert (clip.seconds, clip.format.codec, clip.format.width, clip.format.height) == (8, "vp9", 320, 180)


def test_sessions_have_turns_with_pauses_and_media_in_the_first_alone() -> None:
    requests = drawn("sessions", 200).requests
    lengths = [len(request.turns) for request in requests]
    assert sum(lengths) / 200 == pytest.approx(3.4, abs=0.6)
    for request in requests:
        first, *later = request.turns
        assert first.pause == 0
        assert all(turn.pause > 0 and len(turn.parts) == 1 for turn in later)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KIND + "imgs = 2\n", r"contains unknown field `imgs` - at `\$\.kind\[0\]`"),
        (KIND + 'images = "many"\n', r"'many' is no distribution: write .* - at `\$\.kind\[0\]\.images`"),
        (KIND.replace("share = 1", "share = 0"), "no kind has a share above zero"),
        (KIND.replace("share = 1", "share = -1"), "the share of text must be zero or more"),
        (KIND.replace("share = 1", "share = nan"), "the share of text must be zero or more"),
        (KIND + "size = [321, 180]\n", "the size of text must be even"),
        (KIND + "codecs = []\n", "needs at least one codec"),
        (KIND + 'codecs = ["mpeg1"]\n', "Invalid enum value 'mpeg1'"),
        ("kind = [", "mine.toml: "),
        ("", "missing required field `kind`"),
    ],
)
def test_a_bad_mixture_gets_a_line_that_says_where(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load(str(path))
    assert "\n" not in str(caught.value)


def by_name(name: str, process: Process, count: int) -> Workload:
    return named(name, process, count, 0, Writer(Estimate(), 0), FOLDER)


def test_an_unknown_workload_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"there is no workload 'miixed': choose image, .*long-videos:vp9, trace, or"):
        by_name("miixed", Poisson(1.0), 3)
    with pytest.raises(ConfigError, match=r"mine\.toml: No such file"):
        by_name("mine.toml", Poisson(1.0), 3)


def test_workloads_by_name_have_as_many_requests_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_time,input_tokens,output_tokens\n0,20,4\n1,30,4\n2,40,4\n")
    for name in names():
        process = Trace(path) if name == "trace" else Poisson(1.0)
        workload = by_name(name, process, 2)
        assert len(schedule(process, workload.requests, 0)) == 2
    assert len(by_name("trace", Trace(path, first=1), 2).requests) == 1
    with pytest.raises(ConfigError, match="write --arrivals trace:FILE"):
        by_name("trace", Poisson(1.0), 2)


def test_of_the_long_videos_95_last_at_most_20_minutes_whatever_the_codec() -> None:
    videos = long_videos("h264", seed=3)
    assert sum(video.seconds <= 1200 for video in videos) == 95
    assert len({video.name for video in videos}) == 100
    assert [(v.seconds, v.number, v.seed) for v in long_videos("hevc", seed=3)] == [
        (v.seconds, v.number, v.seed) for v in videos
    ]
    assert [video.seconds for video in long_videos("h264", seed=4)] != [video.seconds for video in videos]
    asked = ask_all("vp9", 100, 0, Writer(Estimate(), 0), FOLDER)
    assert len(asked.requests) == len(asked.media) == 100


def test_replayed_requests_have_the_rows_tokens_and_images(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
        "2024-10-15T12:00:00Z,0,770,491\n2024-10-15T12:00:01Z,2,1032,7\n2024-10-15T12:00:02Z,1,90000,0\n"
    )
    workload = replay(Trace(path), 0, Writer(Estimate(), 0), FOLDER, limit=2000)
    assert [request.kind for request in workload.requests] == ["text", "image", "image"]
    assert [len(texts(request)[0].split()) for request in workload.requests] == [770, 32, 2000]
    assert [request.turns[0].max_tokens for request in workload.requests] == [491, 7, 1]
    visual = [image.width * image.height / 28**2 for image in workload.media if isinstance(image, Image)]
    assert visual == pytest.approx([500, 500, 4096], rel=0.01)


def test_replayed_prompts_share_what_the_trace_says(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1200, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [0, 1, 3]},
        {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [4, 5]},
    ]
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    workload = replay(Trace(path), 0, Writer(Estimate(), 0), FOLDER)
    first, second, third = (texts(request)[0].split() for request in workload.requests)
    assert [len(words) for words in (first, second, third)] == [1200, 1300, 600]
    assert first[:1024] == second[:1024]
    assert first[1024:1026] != second[1024:1026]
    assert first[:2] != third[:2]
