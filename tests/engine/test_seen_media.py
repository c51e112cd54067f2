"""What is told of media, before and after: times and sizes as TorchCodec has them, packets as FFmpeg counts them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from builders import Family
from daemon import Daemon
from every_family import FAMILIES
from media import data_url, image_part, make_image, text_part
from once import once, run_folder

Media = Callable[[str], dict[str, Any]]

X264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "0", "-sc_threshold", "0"]
SOURCE = "testsrc2=size={size}:rate=25:duration={seconds}"
CLIPS: dict[str, tuple[str, list[str]]] = {
    "vfr": (
        SOURCE.format(size="176x112", seconds=4),
        [*X264, "-vf", "select='lt(mod(n,7),3)'", "-vsync", "vfr", "-g", "12"],
    ),
    "rotated": (SOURCE.format(size="160x96", seconds=1), [*X264, "-metadata:s:v", "rotate=90"]),
    "one frame": (SOURCE.format(size="144x120", seconds=0.04), X264),
    "gops": (SOURCE.format(size="160x128", seconds=2), [*X264, "-g", "10"]),
}
SOME = {"media_io_kwargs": {"video": {"num_frames": 6}}}

pytestmark = pytest.mark.daemon("plans are compared with what real workers then do")


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = run_folder(tmp_path_factory) / "planned-clips"

    def encode(path: Path) -> None:
        source, options = CLIPS[path.stem]
        subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, *options, str(path)], check=True)

    return lambda name: once(folder / f"{name}.mp4", encode)


@pytest.fixture
def video(clip: Callable[[str], Path]) -> Media:
    def part(name: str) -> dict[str, Any]:
        return {"type": "video_url", "video_url": {"url": data_url("video/mp4", clip(name).read_bytes())}}

    return part


def body(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    content = [*parts, text_part("What happens?")]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 2, "temperature": 0, **fields}


def plan(daemon: Daemon, asked: dict[str, Any]) -> Any:
    response = httpx.post(f"{daemon.url}/v1/plan", json=asked, timeout=300)
    assert response.status_code == 200, response.text
    return response.json()


def answer(daemon: Daemon, asked: dict[str, Any]) -> Any:
    response = httpx.post(f"{daemon.url}/v1/chat/completions", json=asked, timeout=300)
    assert response.status_code == 200, response.text
    return response.json()


def computed(daemon: Daemon, answered: Any, stage: str) -> int:
    """The tokens that a stage computed for an answer, by the timeline."""
    trace = httpx.get(f"{daemon.url}/debug/trace", params={"request_id": answered["id"]}).json()
    spans = [event for event in trace["traceEvents"] if event.get("cat") == stage and event["name"] != "queue"]
    return sum(span["args"].get("tokens", 0) for span in spans)


def check_against_torchcodec(path: Path, medium: Any) -> None:
    decoders = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
    decoder = decoders.VideoDecoder(str(path))
    height, width = decoder[0].shape[1:]
    assert (medium["width"], medium["height"]) == (width, height)
    begin = decoder.get_frame_at(0).pts_seconds
    times = [decoder.get_frame_at(index).pts_seconds - begin for index in medium["indices"]]
    assert medium["seconds"] == pytest.approx(times, abs=1e-3)
    assert medium["packets"]["total"] == len(decoder)


def check_plan(family: Family, daemon: Daemon, video: Media, clip: Callable[[str], Path]) -> None:
    """Plan a request with all media that a family takes, have it answered, and compare."""
    names = ["vfr", "rotated", "one frame"] if "video" in family.media else []
    images = [] if names and not family.mixed else [image_part(make_image(77, 90, 130))]
    asked = body(*map(video, names), *images, return_media_usage=True, **(SOME if names else {}))
    planned, done = plan(daemon, asked), answer(daemon, asked)
    assert planned["media"] == done["usage"]["media"]
    assert (planned["prompt_tokens"], planned["max_tokens"]) == (done["usage"]["prompt_tokens"], 2)
    assert computed(daemon, done, "encode") == sum(medium["tokens"] for medium in planned["media"])
    cached = done["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert computed(daemon, done, "prefill") == planned["prompt_tokens"] - cached
    for name, medium in zip(names, planned["media"], strict=False):
        check_against_torchcodec(clip(name), medium)
        assert medium["frames"] == len(medium["indices"]) <= 6
    assert [medium["param"].split(".")[1] for medium in planned["media"]] == [
        f"content[{number}]" for number in range(len(names) + len(images))
    ]
    if images:
        assert [planned["media"][-1][field] for field in ("width", "height", "frames", "seconds")] == [130, 90, 1, []]
    daemon.wait_idle()


def test_a_plan_is_what_is_then_done(daemon: Daemon, video: Media, clip: Callable[[str], Path]) -> None:
    check_plan(FAMILIES["qwen2_5_vl"], daemon, video, clip)


@pytest.mark.daemon(prefill_chunk_tokens=16)
@pytest.mark.parametrize("model", ["qwen3_5", "internvl", "minicpmv4_6", "gemma3"])
def test_so_it_is_for_other_layouts(model: str, daemon: Daemon, video: Media, clip: Callable[[str], Path]) -> None:
    check_plan(FAMILIES[model], daemon, video, clip)


def test_packets_are_those_up_to_the_last_frame_of_each_group_of_pictures(daemon: Daemon, video: Media) -> None:
    """In groups of ten pictures, each of which needs the one before."""
    for frames in (2, 4, 8, -1):
        fields = {"media_io_kwargs": {"video": {"num_frames": frames}}}
        (medium,) = plan(daemon, body(video("gops"), **fields))["media"]
        last = {index // 10: index % 10 for index in sorted(medium["indices"])}
        packets = medium["packets"]
        assert packets.pop("seconds") > 0
        assert packets == {"decode": sum(place + 1 for place in last.values()), "total": 50}


def test_frames_that_are_images_have_no_packets(daemon: Daemon) -> None:
    frames = [image_part(make_image(seed, 60, 84))["image_url"]["url"] for seed in range(4)]
    (medium,) = plan(daemon, body({"type": "video", "video": frames, "fps": 4}))["media"]
    assert (medium["packets"], medium["seconds"]) == (None, [0.0, 0.25, 0.5, 0.75])
    assert (medium["width"], medium["height"], medium["param"]) == (84, 60, "messages[0].content[0].video")


def test_a_shorter_limit_buys_fewer_frames(daemon: Daemon, video: Media) -> None:
    asked = body(video("gops"), media_io_kwargs={"video": {"num_frames": 40}})
    for _ in range(2):
        answer(daemon, asked | {"max_tokens": 8})  # the costs are known from now on
    daemon.wait_idle()
    whole, least = plan(daemon, asked), plan(daemon, asked | {"max_ttft": 0.001})
    assert whole["media"][0]["frames"] == 40
    assert least["media"][0]["frames"] == 1
    assert 0 < least["expected_ttft"] < whole["expected_ttft"]
    between = (least["expected_ttft"] + whole["expected_ttft"]) / 2
    some = plan(daemon, asked | {"max_ttft": between})
    assert some["expected_ttft"] <= between + 0.1  # told to a tenth of a millisecond
    assert 1 < some["media"][0]["frames"] < 40
    assert plan(daemon, asked | {"max_ttft": 1e8})["media"] == whole["media"]
    told = answer(daemon, asked | {"max_ttft": 0.001})["usage"]
    assert (told["media"], told["prompt_tokens"]) == (least["media"], least["prompt_tokens"])
    daemon.wait_idle()


def test_what_cannot_be_read_is_refused_alike(daemon: Daemon) -> None:
    broken = {"type": "video_url", "video_url": {"url": data_url("video/mp4", b"no video")}}
    refused = httpx.post(f"{daemon.url}/v1/plan", json=body(broken), timeout=300).json()["error"]
    with pytest.raises(openai.BadRequestError) as error:
        daemon.client.chat.completions.create(model=daemon.engine.model_name, **body(broken))
    assert refused == error.value.body
    assert refused["param"] == "messages[0].content[0].video_url.url"
    daemon.wait_idle()


def test_a_text_has_a_plan_too(daemon: Daemon) -> None:
    planned = plan(daemon, body(text_part("word " * 40)))
    assert (planned["media"], planned["pages"]["patch"], planned["pages"]["visual"]) == ([], 0, 0)
    tokens = planned["prompt_tokens"] + planned["max_tokens"] - 1
    assert planned["pages"]["kv"] == -(-tokens // daemon.engine.config.memory.kv_page_tokens)
