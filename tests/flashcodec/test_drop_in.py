"""flashcodec.torch in TorchCodec's place: what programs import, catch, and read besides frames."""

import io
import json
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from flashcodec_clips import ClipMaker, run_ffmpeg

from flashcodec import DecodeError, NoVideoError

torch = pytest.importorskip("torch", reason="frames are its tensors")
torchcodec = pytest.importorskip("torchcodec", reason="TorchCodec is the reference")
pytest.importorskip("torchcodec.samplers")

import flashcodec.torch as drop_in  # noqa: E402
from flashcodec.torch import VideoDecoder, samplers, transforms  # noqa: E402

SAMPLERS = ["random_indices", "random_timestamps", "regular_indices", "regular_timestamps"]
NAMES = [
    *("Frame", "FrameBatch", "decoders.VideoDecoder", "decoders.CpuFallbackStatus", "decoders.VideoStreamMetadata"),
    *(f"transforms.{name}" for name in ("DecoderTransform", "Resize", "CenterCrop", "RandomCrop")),
    *(f"samplers.clips_at_{name}" for name in SAMPLERS),
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_where_torchcodec_has_them(name: str) -> None:
    ours, theirs = drop_in, torchcodec
    for part in name.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    assert ours.__name__ == theirs.__name__


@pytest.mark.parametrize("name", ["sound.wav", "sound.mov"])
def test_a_file_without_video_raises_what_torchcodec_raises(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    run_ffmpeg("-f", "lavfi", "-i", "sine=d=0.1", str(path))
    with pytest.raises(ValueError, match="video"):
        torchcodec.decoders.VideoDecoder(path)
    with pytest.raises(ValueError, match="video") as caught:
        VideoDecoder(path)
    assert isinstance(caught.value, NoVideoError)
    assert isinstance(caught.value, DecodeError)


# As in programs that look at the text of an error: what TorchCodec's says, too.
TEXTS: dict[str, tuple[Callable[[Any, Path], Any], str]] = {
    "one index too large": (lambda d, _: d.get_frames_at([10_000]), "Invalid frame index=10000"),
    "one index too small": (lambda d, _: d.get_frame_at(-10_000), "must have an absolute value less than"),
    "a float index": (lambda d, _: d.get_frames_at([0.3]), "expected scalar type Long but found Float"),
    "played before the start": (lambda d, _: d.get_frames_played_at([-1]), "must be greater than or equal to"),
    "played after the end": (lambda d, _: d.get_frames_played_at([99]), "must be less than"),
    "played at a string": (lambda d, _: d.get_frames_played_at(["x"]), "Couldn't convert timestamps input to a tensor"),
    "range after the end": (lambda d, _: d.get_frames_played_in_range(0, 99), "must be less than or equal to"),
    "rate of zero": (lambda d, _: d.get_frames_played_in_range(0, 1, fps=0), "fps must be positive"),
    "no such stream": (lambda d, path: type(d)(path, stream_index=40), "40 is not a valid stream"),
    "no source": (lambda d, _: type(d)(3), "Unknown source type"),
}


@pytest.mark.parametrize("call", TEXTS)
def test_texts_of_errors_have_torchcodecs_words(clip: ClipMaker, call: str) -> None:
    path = clip("h264_bframes.mp4")
    action, words = TEXTS[call]
    for kind in (torchcodec.decoders.VideoDecoder, VideoDecoder):
        decoder = kind(path)
        with pytest.raises(Exception, match=words):
            action(decoder, path)


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_tagged.mp4", "rotated.mp4"])
def test_metadata_are_written_as_torchcodecs(clip: ClipMaker, name: str) -> None:
    expected = str(torchcodec.decoders.VideoDecoder(clip(name)).metadata)
    assert str(VideoDecoder(clip(name)).metadata) == expected


def test_a_decoder_on_the_host_never_falls_back_to_it(clip: ClipMaker) -> None:
    ours = VideoDecoder(clip("rotated.mp4"), device="cpu").cpu_fallback
    theirs = torchcodec.decoders.VideoDecoder(clip("rotated.mp4"), device="cpu").cpu_fallback
    assert (ours.status_known, bool(ours), str(ours)) == (theirs.status_known, bool(theirs), str(theirs))


def test_indices_and_times_may_be_tensors_of_any_numbers(clip: ClipMaker) -> None:
    ours, theirs = VideoDecoder(clip("rotated.mp4")), torchcodec.decoders.VideoDecoder(clip("rotated.mp4"))
    for dtype in (torch.int16, torch.int64, torch.float32, torch.float64):
        numbers = torch.tensor([7, 0, 3], dtype=dtype)
        assert torch.equal(ours.get_frames_at(numbers).data, theirs.get_frames_at(numbers).data)
        times = (numbers + 0.5) / 25
        assert torch.equal(ours.get_frames_played_at(times).data, theirs.get_frames_played_at(times).data)


def test_half_an_index_is_none(clip: ClipMaker) -> None:
    """TorchCodec would take the frame before."""
    for bad in ([7.0, 0.5], [float("nan")]):
        with pytest.raises(TypeError, match="whole numbers"):
            VideoDecoder(clip("rotated.mp4")).get_frames_at(torch.tensor(bad))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_samplers_say_what_metadata_lack(clip: ClipMaker, kind: str) -> None:
    decoder = VideoDecoder(clip("rotated.mp4"))
    arguments = {"seconds_between_clip_starts": 0.1} if kind == "regular_timestamps" else {}
    sample: Any = getattr(samplers, f"clips_at_{kind}")
    for field, words in (("end_stream_seconds", "stream end"), ("average_fps", "average fps")):
        known = getattr(decoder.metadata, field)
        setattr(decoder.metadata, field, None)
        if kind.endswith("indices"):
            assert len(sample(decoder)) == 1
        else:
            with pytest.raises(ValueError, match=f"Could not infer {words}"):
                sample(decoder, **arguments)
        setattr(decoder.metadata, field, known)


@pytest.fixture(scope="module")
def mappings(clip: ClipMaker) -> dict[str, Any]:
    """Return what ffprobe tells of the frames of a clip."""
    ffprobe = shutil.which("ffprobe")
    if ffprobe is None:
        pytest.skip("ffprobe writes the mappings; it is not installed")
    entries = ["-show_entries", "frame=pts,duration,pkt_duration,key_frame", "-of", "json"]
    command = [ffprobe, "-v", "error", "-select_streams", "v", *entries, str(clip("h264_vfr.mp4"))]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


@pytest.mark.parametrize("kind", [str, str.encode, io.StringIO], ids=lambda kind: kind.__name__)
def test_mappings_that_fit_are_taken(clip: ClipMaker, mappings: dict[str, Any], kind: Callable[[str], Any]) -> None:
    path, text = clip("h264_vfr.mp4"), json.dumps(mappings)
    ours = VideoDecoder(path, custom_frame_mappings=kind(text))
    theirs = torchcodec.decoders.VideoDecoder(path, custom_frame_mappings=kind(text))
    assert torch.equal(ours.get_frames_at([9, 40]).data, theirs.get_frames_at([9, 40]).data)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"frames": []}', '{"frames": [{"pts": 0}]}', '{"frames": [{"pts": "N/A"}]}']
)
def test_mappings_that_are_none_are_refused(clip: ClipMaker, text: str) -> None:
    for kind in (str, io.StringIO):
        with pytest.raises(ValueError, match="Invalid custom frame mappings"):
            VideoDecoder(clip("h264_vfr.mp4"), custom_frame_mappings=kind(text))


def test_mappings_of_another_stream_are_refused(clip: ClipMaker, mappings: dict[str, Any]) -> None:
    """TorchCodec believes them, and takes other frames than asked for."""
    frames = mappings["frames"]
    moved = [frame | {"pts": frame["pts"] + 900 * (number > 5)} for number, frame in enumerate(frames)]
    for wrong, words in ((frames[:-1], "frames, the stream has"), (moved, "another time")):
        with pytest.raises(ValueError, match=words):
            VideoDecoder(clip("h264_vfr.mp4"), custom_frame_mappings=json.dumps({"frames": wrong}))


def test_classes_that_programs_compare_with(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("rotated.mp4"), transforms=[transforms.Resize((9, 9))])
    assert isinstance(decoder.metadata, drop_in.decoders.VideoStreamMetadata)
    assert isinstance(decoder.metadata.pixel_aspect_ratio, Fraction | None)
    assert isinstance(decoder.get_frame_at(0), drop_in.Frame)
    assert isinstance(samplers.clips_at_regular_indices(decoder), drop_in.FrameBatch)
