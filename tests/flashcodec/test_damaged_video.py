"""Bad sources: one clear DecodeError, never a crash, a hang or a thread that is stuck."""

import io
import random
import socket
from pathlib import Path

import pytest
from flashcodec_clips import ClipMaker, run_ffmpeg

import flashcodec
from flashcodec import DecodeError, FlashCodec, PatchLayout, VideoDecoder

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


def test_pictures_over_the_limit_are_refused(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    with pytest.raises(DecodeError, match=r"320x180 are over the limit of 1000 pixels"):
        flashcodec.analyse_bitstream(path, limits=flashcodec.Limits(max_pixels=1000))
    assert flashcodec.analyse_bitstream(path, limits=flashcodec.Limits(max_pixels=320 * 180)).num_frames == 150


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


def test_tables_that_claim_millions_of_frames_are_refused(clip: ClipMaker) -> None:
    data = bytearray(clip("h264_fragmented.mp4").read_bytes())
    run = data.index(b"trun") + 4
    data[run : run + 8] = bytes(4) + (20_000_000).to_bytes(4, "big")  # no flags: all samples alike, none listed
    with pytest.raises(DecodeError, match="more than 4194304 packets"):
        flashcodec.analyse_bitstream(bytes(data))


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
                groups += output.num_groups
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
