"""Files that hold no video: the error says what they are, and which way they can be opened."""

import gzip
import io
import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from flashcodec.image import decode_image
from flashcodec_clips import ClipMaker, run_ffmpeg

import flashcodec
from flashcodec import DecodeError, SourceError, UnsupportedError, VideoDecoder


def zip_archive(second: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("talk.mp4", (2020, 1, 1, 15, 2, second)), bytes(100))
    return buffer.getvalue()


def tar_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("talk.mp4"))
    return buffer.getvalue()


# what the error says -> the bytes
NO_MEDIA = {
    "an HTML page: the answer to a failed download": b"\xef\xbb\xbf\n<!DOCTYPE html>\n<html><body>404</body></html>"
    * 9,
    "an XML document": b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
    "a JSON document": json.dumps({"error": {"code": 404, "message": "no such object"}}, indent=2).encode(),
    "a text file": "Größe: unbekannt\n".encode() * 50,
    "a Git LFS pointer: `git lfs pull`": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n",
    "an M3U playlist: playlists are not followed": b"#EXTM3U\n#EXTINF:10,\nsegment.ts\n",
    "a ZIP archive: unpack it": zip_archive(),
    "a tar archive: unpack it": tar_archive(),
    "a gzip archive: unpack it": gzip.compress(b"video" * 100, mtime=0),
    "a PDF document": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" * 9,
    "zeros only: it was not written": bytes(5000),
}
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic\0\0\1\xa2meta" + bytes(500)
OTHER_MEDIA = {
    "a HEIC image: convert it": HEIC,
    "a HEIF image: convert it": HEIC.replace(b"ftypheic", b"ftypmif1"),
    "a JPEG XL image: convert it": b"\0\0\0\x0cJXL \r\n\x87\n\0\0\0\x14ftypjxl \0\0\0\0jxl " + bytes(100),
    "an SVG image: convert it": b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'></svg>",
}


@pytest.mark.parametrize("text", NO_MEDIA)
def test_what_is_no_media_file(text: str) -> None:
    with pytest.raises(SourceError, match=f"not a video file but .*{text}"):
        flashcodec.analyse_bitstream(NO_MEDIA[text])
    with pytest.raises(UnsupportedError, match=text):
        decode_image(NO_MEDIA[text])


def test_an_archive_that_looks_like_a_transport_stream() -> None:
    """Its time of day has the byte that packets of MPEG-TS begin with, so that FFmpeg opens it as such a stream."""
    with pytest.raises(SourceError, match="a ZIP archive: unpack it"):
        flashcodec.analyse_bitstream(zip_archive(second=14))


@pytest.mark.parametrize("text", OTHER_MEDIA)
def test_images_that_cannot_be_decoded(text: str) -> None:
    with pytest.raises(UnsupportedError, match=f"not a video file but {text}"):
        flashcodec.analyse_bitstream(OTHER_MEDIA[text])
    with pytest.raises(UnsupportedError, match="convert it to JPEG or AVIF"):
        decode_image(OTHER_MEDIA[text])


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "BMP", "TIFF", "PPM"])
def test_images_are_for_the_other_function(file_format: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow encodes images")
    buffer = io.BytesIO()
    image.new("RGB", (64, 48)).save(buffer, file_format)
    with pytest.raises(UnsupportedError, match=f"an? {file_format} image: flashcodec.image decodes it"):
        flashcodec.analyse_bitstream(buffer.getvalue())
    assert decode_image(buffer.getvalue()).shape == (48, 64, 3)


def test_a_video_is_for_the_other_function(clip: ClipMaker) -> None:
    with pytest.raises(UnsupportedError, match=r"an MP4 or MOV file: flashcodec\.VideoDecoder decodes"):
        decode_image(clip("h264_tagged.mp4"))
    with pytest.raises(UnsupportedError, match="0 bytes"):
        decode_image(b"")


@pytest.mark.parametrize(
    ("name", "text"), [("sound.mp4", "only audio"), ("sound.wav", "a WAV file: there is no video")]
)
def test_sound_alone(clip: ClipMaker, tmp_path: Path, name: str, text: str) -> None:
    clip("h264_tagged.mp4")  # skips where there is no FFmpeg
    run_ffmpeg("-f", "lavfi", "-i", "sine=d=0.2", str(tmp_path / name))
    with pytest.raises(UnsupportedError, match=text):
        flashcodec.analyse_bitstream(tmp_path / name)


def test_mp4_that_is_cut_off(clip: ClipMaker) -> None:
    data = clip("h264_tagged.mp4").read_bytes()
    with pytest.raises(SourceError, match=r"cut off, or its recording was not finished \(moov atom not found\)"):
        flashcodec.analyse_bitstream(data[: len(data) // 2])


@pytest.mark.parametrize(
    "name", ["h264_faststart.mp4", "h264_bframes.mkv", "vp9.webm", "h264_opengop.ts", "mpeg4.avi", "mpeg2.mpg"]
)
def test_a_video_that_is_cut_off_near_its_beginning_is_said_to_be(clip: ClipMaker, name: str) -> None:
    data = clip(name).read_bytes()
    for size in (5, 11, 12, 20, 40, 100, 300):
        try:
            flashcodec.analyse_bitstream(data[:size])
        except DecodeError as error:
            said = str(error)
        else:
            continue  # there is a picture
        assert re.search("cut off|damaged", said), (size, said)


def test_what_the_decoder_does_not_take_is_refused_at_opening(clip: ClipMaker, tmp_path: Path) -> None:
    """Raw pictures of 13 bits a pixel, a number that AVI can tell and for which FFmpeg has no pixel format."""
    clip("h264_tagged.mp4")  # skips where there is no FFmpeg
    path = tmp_path / "raw.avi"
    raw = ["-c:v", "rawvideo", "-pix_fmt", "bgr24"]
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=5:d=0.4", *raw, str(path))
    assert VideoDecoder(path)[1].shape == (3, 48, 64)
    data = bytearray(path.read_bytes())
    bits = data.index(b"strf") + 8 + 14
    data[bits : bits + 2] = (13).to_bytes(2, "little")
    with pytest.raises(UnsupportedError, match="the decoder of rawvideo does not take this stream"):
        flashcodec.analyse_bitstream(data)
