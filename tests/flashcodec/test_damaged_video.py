"""Bad sources: one clear DecodeError, never a crash, a hang or a thread that is stuck."""

import io
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec_clips import ClipMaker, packet_places, run_ffmpeg, without_packets
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import (
    Bitstream,
    DamagedError,
    DecodeError,
    FlashCodec,
    LimitError,
    Limits,
    PatchLayout,
    RGBLayout,
    SourceError,
    UnsupportedError,
    VideoDecoder,
)

Pixels = npt.NDArray[np.uint8]

UNREADABLE = {
    "bad/ax_audio_only.mp4": "no video stream",
    "bad/ax_fragments_without_moov.mp4": "not a video file",
    "bad/ax_malformed_free_box.mp4": "moov atom not found",
    "bad/ax_no_frames.ts": "picture size is unknown",
    "bad/ax_unsupported_vvc.mp4": "vvc",
    "bad/ax_encrypted_altref_vp9.webm": "encrypted",
    "bad/mp_zero_bytes.webm": "0 bytes",
    "bad/x_fragments_second_moof_truncated.mp4": "not a video file",
    "bad/x_html_error_page.mp4": "not a video file",
    "bad/x_text_named.mp4": "not a video file",
    "bad/x_truncated_moov_at_end_60pct.mp4": "moov atom not found",
    "bad/x_ts_only_sps_lost.ts": "picture size is unknown",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files_say_why(data_folder: Path, name: str) -> None:
    path = data_folder / "videos" / name
    with pytest.raises(DecodeError, match=UNREADABLE[name]) as caught:
        flashcodec.analyse_bitstream(path)
    assert caught.value.source == str(path)
    assert caught.value.reason in str(caught.value)


@pytest.mark.parametrize("name", ["ax_encrypted_piff_uuid.mp4", "ax_invalid_bitstream_vp9.webm"])
def test_undecodable_frames_say_why(data_folder: Path, name: str) -> None:
    decoder = VideoDecoder(data_folder / "videos" / "bad" / name)
    with pytest.raises(DecodeError, match="frame 3 could not be decoded"):
        decoder.get_frame_at(3)


def test_intact_frames_of_a_truncated_file_are_decoded(clip: ClipMaker) -> None:
    data = clip("h264_faststart.mp4").read_bytes()
    whole, part = VideoDecoder(data), VideoDecoder(data[: len(data) // 2])
    assert len(part) == len(whole)
    assert (part[10] == whole[10]).all()
    with pytest.raises(DecodeError, match="truncated"):
        part.get_frame_at(149)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match="No such file"):
        VideoDecoder(tmp_path / "missing.mp4")
    with pytest.raises(DecodeError, match="directory"):
        VideoDecoder(tmp_path)
    with pytest.raises(DecodeError, match="not a regular file"):
        VideoDecoder("/dev/zero")
    text = tmp_path / "text.mp4"
    text.write_text("this is no video\n" * 100)
    with pytest.raises(DecodeError, match="not a video file"):
        VideoDecoder(text)
    with pytest.raises(DecodeError, match="0 bytes"):
        VideoDecoder(b"")


def test_limits_of_analysis_are_held_and_named(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    size = path.stat().st_size
    refused = {
        Limits(max_pixels=1000): r"320x180 are over the limit of 1000 pixels \(max_pixels\)",
        Limits(max_frames=149): r"149.*max_frames",
        Limits(max_source_bytes=size - 1): rf"{size - 1}.*max_source_bytes",
        Limits(max_analysis_seconds=1e-9): r"max_analysis_seconds",
    }
    for limits, message in refused.items():
        with pytest.raises(LimitError, match=message) as caught:
            flashcodec.analyse_bitstream(path, limits=limits)
        assert caught.value.source == str(path)
    enough = Limits(max_pixels=320 * 180, max_frames=150, max_source_bytes=size, max_analysis_seconds=60)
    assert flashcodec.analyse_bitstream(path, limits=enough).num_frames == 150
    names = ("max_pixels", "max_frames", "max_source_bytes", "max_analysis_seconds", "max_decode_seconds")
    for value in (None, 2**80):
        free = flashcodec.analyse_bitstream(path, limits=Limits(**dict.fromkeys(names, value)))
        assert VideoDecoder(free).get_frame_at(149).data.size


def test_a_scan_of_packets_ends_at_the_limits(clip: ClipMaker) -> None:
    path = clip("h264_opengop.ts")
    with pytest.raises(LimitError, match="max_frames"):
        flashcodec.analyse_bitstream(path, limits=Limits(max_frames=100))
    with pytest.raises(LimitError, match="max_analysis_seconds"):
        flashcodec.analyse_bitstream(path, limits=Limits(max_analysis_seconds=1e-9))


def test_the_time_limit_of_decoding_ends_a_request(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    hurried = flashcodec.analyse_bitstream(path, limits=Limits(max_decode_seconds=1e-9))
    with FlashCodec(num_threads=1) as codec:
        late = codec.add_decoding_request(hurried, range(150))
        after = codec.add_decoding_request(path, [3])
        outputs = {late: 0, after: 0}
        errors = []
        left = {late, after}  # whichever goes first
        while left:
            output = codec.get_decoding_output(120)
            assert output is not None
            outputs[output.request] += output.count
            errors += [output.error] if output.error is not None else []
            left -= {output.request} if output.done else set()
    assert outputs[late] < 150
    assert outputs[after] == 1
    assert [type(error) for error in errors] == [LimitError]
    assert "max_decode_seconds" in errors[0].reason


def test_playlists_open_no_other_files(clip: ClipMaker, tmp_path: Path) -> None:
    target = clip("h264_opengop.ts")
    playlist = tmp_path / "list.m3u8"
    playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{target}\n#EXT-X-ENDLIST\n")
    concat = tmp_path / "list.txt"
    concat.write_text(f"ffconcat version 1.0\nfile '{target}'\n")
    for path in (playlist, concat):
        with pytest.raises(DecodeError):
            VideoDecoder(path)


class Failing(io.BytesIO):
    """A file whose reads fail once it is told so."""

    broken = False

    def read(self, size: int | None = -1, /) -> bytes:
        if self.broken:
            raise OSError("the disk is gone")
        return super().read(size)


class Wrong(io.BytesIO):
    def read(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        return "text"


def test_file_objects_that_fail(clip: ClipMaker) -> None:
    file = Failing(clip("h264_bframes.mp4").read_bytes())
    decoder = VideoDecoder(file)
    file.broken = True
    with pytest.raises(DecodeError, match="the disk is gone"):
        decoder.get_frame_at(40)
    with pytest.raises(DecodeError, match="the disk is gone"):
        VideoDecoder(file)
    with pytest.raises(DecodeError, match="did not return bytes"):
        VideoDecoder(Wrong(b"something"))


class Interrupted(io.BytesIO):
    """A file whose reads meet Ctrl-C."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise KeyboardInterrupt


def test_an_interrupted_analysis_is_no_damage() -> None:
    """Whoever goes on after damaged files can still be stopped."""
    with pytest.raises(KeyboardInterrupt):
        Bitstream(Interrupted(b"something"))


class Unsought(io.BytesIO):
    def seek(self, offset: int, whence: int = 0, /) -> None:  # type: ignore[override]
        super().seek(offset, whence)


def test_a_file_that_does_not_tell_its_place() -> None:
    with pytest.raises(TypeError, match=r"seek\(\) of the file object did not return a position"):
        VideoDecoder(Unsought(b"something"))


def test_tables_that_claim_millions_of_frames_are_refused(clip: ClipMaker) -> None:
    data = bytearray(clip("h264_fragmented.mp4").read_bytes())
    run = data.index(b"trun") + 4
    data[run : run + 8] = bytes(4) + (20_000_000).to_bytes(4, "big")  # no flags: all samples alike, none listed
    with pytest.raises(LimitError, match=r"claim 20000000 entries, over the limit of 4194304 \(max_frames\)"):
        flashcodec.analyse_bitstream(bytes(data))


def test_a_sample_table_that_claims_gigabytes_is_refused(clip: ClipMaker) -> None:
    """Sizes all alike, and one chunk that holds them all: a few bytes for eighty million index entries."""
    data = bytearray(clip("h264_faststart.mp4").read_bytes())
    sizes, chunks = data.index(b"stsz"), data.index(b"stsc")
    data[sizes + 8 : sizes + 16] = (1).to_bytes(4, "big") + (80_000_000).to_bytes(4, "big")
    data[chunks + 16 : chunks + 20] = (80_000_000).to_bytes(4, "big")
    with pytest.raises(LimitError, match="claim 80000000 entries"):
        flashcodec.analyse_bitstream(bytes(data))


def test_sound_of_millions_of_samples_is_no_claim(clip: ClipMaker, tmp_path: Path) -> None:
    path = tmp_path / "pcm.mov"
    sound = ("-f", "lavfi", "-i", "sine=r=48000:d=100")
    run_ffmpeg("-i", str(clip("mjpeg.mov")), *sound, "-c:v", "copy", "-c:a", "pcm_s16le", str(path))
    assert flashcodec.analyse_bitstream(path).num_frames == 25


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Flips, overwrites, cuts or repeats some of it."""
    damaged = bytearray(data)
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randint(1, 60)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        begin = rng.randrange(len(damaged))
        damaged[begin : begin + rng.randint(1, 4000)] = rng.randbytes(rng.randint(1, 4000))
    elif kind == 2:
        del damaged[rng.randrange(len(damaged)) :]
    else:
        begin = rng.randrange(len(damaged))
        damaged[begin:begin] = damaged[rng.randrange(len(damaged)) :][:3000]
    return bytes(damaged)


DAMAGED = ["h264_opengop.mp4", "h264_fragmented.mp4", "h264_opengop.ts", "hevc_opengop.mp4", "vp9.webm", "mpeg2.mpg"]


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_give_frames_or_an_error(clip: ClipMaker, name: str) -> None:
    data = clip(name).read_bytes()
    rng = random.Random(name)
    layout = PatchLayout(56, 84)
    with FlashCodec(num_threads=2) as codec:
        for _ in range(25):
            try:
                stream = flashcodec.analyse_bitstream(mutate(data, rng), limits=flashcodec.Limits(max_pixels=1 << 20))
                frames = sorted(rng.choices(range(stream.num_frames), k=6))
                request = codec.add_decoding_request(stream, frames, layout)
            except DecodeError:
                continue
            groups = 0
            while True:
                output = codec.get_decoding_output(120)
                assert output is not None
                assert output.request == request
                groups += output.count > 0
                if output.done:
                    break
            assert (output.error is None) == (groups == 3)
        assert codec.get_decoding_output(0) is None


def test_a_codec_change_of_picture_size_within_the_limit(clip: ClipMaker, tmp_path: Path) -> None:
    """The limit holds for the pictures inside, whatever the container says."""
    small = tmp_path / "small.ts"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x64:d=1", "-c:v", "libx264", "-y", str(small))
    both = tmp_path / "both.ts"
    both.write_bytes(small.read_bytes() + clip("h264_opengop.ts").read_bytes())
    decoder = VideoDecoder(flashcodec.analyse_bitstream(both, limits=flashcodec.Limits(max_pixels=64 * 64)))
    assert decoder.get_frame_at(20).data.shape == (3, 64, 64)
    with pytest.raises(DecodeError, match="could not be decoded"):
        decoder.get_frame_at(len(decoder) - 1)


DASH = """<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"
profiles="urn:mpeg:dash:profile:isoff-live:2011" type="static" mediaPresentationDuration="PT4S"><Period>
<AdaptationSet contentType="video"><Representation id="1" mimeType="video/mp4" bandwidth="1">
<BaseURL>http://127.0.0.1:{port}/a.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>"""
HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n"
SDP = (
    "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\na=rtpmap:96 H264/90000\n"
)
CONCAT = "ffconcat version 1.0\nfile {path}\n"


@pytest.mark.parametrize("text", [DASH, HLS, SDP, CONCAT], ids=["dash", "hls", "sdp", "concat"])
def test_a_file_that_names_other_files_or_addresses_reads_none(clip: ClipMaker, text: str) -> None:
    path = clip("h264_bframes.mp4")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(flashcodec.DecodeError, match=r"not in a video container format|not a video file"):
            flashcodec.analyse_bitstream(text.format(port=port, path=path).encode())
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.fixture(scope="module")
def whole(clip: ClipMaker) -> VideoDecoder:
    return VideoDecoder(clip("h264_bframes.mp4"))  # closed GOPs of 30


@pytest.fixture(scope="module")
def holed(clip: ClipMaker) -> bytes:
    """Of frames 60 to 89, only the key frame and the first few others are there."""
    return without_packets(clip("h264_bframes.mp4"), range(65, 90))


ASKED = [10, 59, 60, 85, 90, 120, 85, 30]


def test_frames_before_and_after_a_damage_come_and_the_others_are_reported(whole: VideoDecoder, holed: bytes) -> None:
    batch = VideoDecoder(holed, on_error="skip").get_frames_at(ASKED)
    left = [frame for frame in ASKED if frame != 85]
    assert batch.indices.tolist() == left
    np.testing.assert_array_equal(batch.data, whole.get_frames_at(left).data)
    np.testing.assert_array_equal(batch.pts_seconds, whole.get_frames_at(left).pts_seconds)
    assert list(batch.damaged) == [85]
    error = batch.damaged[85]
    assert isinstance(error, DamagedError)
    assert error.position == 85
    assert error.stream == 0


def test_the_nearest_intact_frame_asked_for_takes_the_place_of_a_damaged_one(whole: VideoDecoder, holed: bytes) -> None:
    batch = VideoDecoder(holed, on_error="nearest").get_frames_at(ASKED)
    replaced = [90 if frame == 85 else frame for frame in ASKED]
    assert batch.indices.tolist() == replaced
    np.testing.assert_array_equal(batch.data, whole.get_frames_at(replaced).data)
    assert list(batch.damaged) == [85]


def test_a_damage_raises_unless_told_otherwise(whole: VideoDecoder, holed: bytes) -> None:
    decoder = VideoDecoder(holed)
    with pytest.raises(DamagedError, match="frame 85") as caught:
        decoder.get_frames_at(ASKED)
    assert caught.value.position == 85
    np.testing.assert_array_equal(decoder.get_frames_at([59, 90]).data, whole.get_frames_at([59, 90]).data)


@pytest.mark.parametrize("on_error", ["skip", "nearest"])
def test_if_all_frames_are_damaged_there_is_nothing_to_return(holed: bytes, on_error: str) -> None:
    with pytest.raises(DamagedError, match="frame 8"):
        VideoDecoder(holed, on_error=on_error).get_frames_at([85, 86])  # type: ignore[arg-type]


@settings(max_examples=20)
@given(data=st.data())
def test_what_is_given_out_without_a_mark_is_right(clip: ClipMaker, whole: VideoDecoder, data: st.DataObject) -> None:
    """Whatever packets are lost: a frame is an error, marked as damaged, or as it was encoded."""
    first = data.draw(st.integers(0, 148))
    lost = range(first, data.draw(st.integers(first + 1, 150)))
    frames = sorted(data.draw(st.sets(st.integers(0, 149), min_size=1, max_size=10)))
    damaged = without_packets(clip("h264_bframes.mp4"), lost)
    try:
        stream = flashcodec.analyse_bitstream(damaged)
    except DecodeError:
        assert first == 0  # where the parameters of the stream are
        return
    check_against(whole, unmarked(stream, frames, threads=2))


def test_several_threads_mark_what_one_thread_marks(clip: ClipMaker, whole: VideoDecoder) -> None:
    """With the frame asked for alone, which has a decoder with two threads."""
    stream = flashcodec.analyse_bitstream(without_packets(clip("h264_bframes.mp4"), range(121, 122)))
    for frame in range(115, 150):
        found = [unmarked(stream, [frame], threads) for threads in (1, 2)]
        assert found[0].keys() == found[1].keys() == ({frame} if frame <= 120 else set())
        check_against(whole, found[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_predicted_from_a_concealed_picture_is_marked(
    clip: ClipMaker, whole: VideoDecoder, threads: int
) -> None:
    """Also where it is shown before, and with frame threads, whose pictures come out while others are decoded."""
    path = clip("h264_bframes.mp4")
    data = bytearray(path.read_bytes())
    offset, size = packet_places(path)[121]  # a P picture; B pictures are shown before it
    data[offset + size // 3 : offset + size] = bytes(size - size // 3)
    stream = flashcodec.analyse_bitstream(bytes(data))
    for frames in ([149], [130], list(range(118, 150))):
        for _ in range(4):
            found = unmarked(stream, frames, threads)
            assert found.keys() == set(frames) & {118, 119, 120}
            check_against(whole, found)


def unmarked(stream: Bitstream, frames: list[int], threads: int) -> dict[int, Pixels]:
    """Return the frames that come without a mark."""
    intact, seen = {}, 0
    with FlashCodec(num_threads=threads) as codec:
        codec.add_decoding_request(stream, frames, RGBLayout(), on_error="skip")
        while seen < len(frames):
            output = codec.get_decoding_output(120)
            assert output is not None
            seen += output.count
            if output.error is None and not output.damaged:
                assert output.data is not None
                intact[frames[output.first]] = output.data[0]
        assert output.done
    return intact


def check_against(whole: VideoDecoder, frames: dict[int, Pixels]) -> None:
    for frame, pixels in frames.items():
        np.testing.assert_array_equal(pixels, whole[frame])


NO_DATA = pytest.mark.skip(reason="no test videos beside this checkout")
BAD_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "videos" / "bad"


def analysed(path: Path) -> Bitstream | DecodeError:
    try:
        return flashcodec.analyse_bitstream(path, limits=Limits(max_analysis_seconds=120))
    except DecodeError as error:
        return error


@pytest.mark.parametrize(
    "name", sorted(path.name for path in BAD_FOLDER.glob("*")) or [pytest.param("", marks=NO_DATA)]
)
def test_each_bad_file_gives_frames_or_says_why_not(name: str) -> None:
    path = BAD_FOLDER / name
    kinds = (SourceError, UnsupportedError, DamagedError, LimitError)
    stream = analysed(path)
    if isinstance(stream, DecodeError):
        assert isinstance(stream, kinds)
        assert str(stream).startswith(str(path))
        assert stream.reason
        return
    frames = sorted({0, stream.num_frames // 2, stream.num_frames - 1})
    with FlashCodec(num_threads=1) as codec:
        codec.add_decoding_request(stream, frames, RGBLayout(32, 32), on_error="skip")
        for _ in frames:
            output = codec.get_decoding_output(120)
            assert output is not None
            if output.error is None:
                assert output.data is not None
                assert output.data.shape == (1, 3, 32, 32)
                continue
            assert isinstance(output.error, kinds)
            assert output.error.source == str(path)
            assert output.error.position == frames[output.first]
        assert output.done


LEAKS = """
import gc, os, sys
import flashcodec
from pathlib import Path

path, damaged = Path(sys.argv[1]), Path(sys.argv[2])
data, bad = path.read_bytes(), damaged.read_bytes()

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name + ":"))

def open_and_close(number):
    try:
        source = (path, data, damaged, bad, open(path, "rb"))[number % 5]
        decoder = flashcodec.VideoDecoder(source, num_threads=1)
        decoder.get_frames_at([0, 30, len(decoder) - 1])
    except flashcodec.DecodeError:
        pass

def state():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), status("Threads"), status("VmRSS")

for number in range(200):
    open_and_close(number)
before = state()
for number in range(400):
    open_and_close(number)
after = state()
print(*before, *after)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps what is freed")
def test_hundreds_of_times_opened_and_closed_leaks_nothing(clip: ClipMaker, tmp_path: Path) -> None:
    path = clip("h264_fragmented.mp4")
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(path.read_bytes()[:-3000])
    command = [sys.executable, "-c", LEAKS, str(path), str(damaged)]
    done = subprocess.run(command, capture_output=True, check=True)
    files, threads, kilobytes, files_after, threads_after, kilobytes_after = map(int, done.stdout.split())
    assert files_after <= files
    assert threads_after <= threads
    assert kilobytes_after - kilobytes < 2000  # 5 kB a time
