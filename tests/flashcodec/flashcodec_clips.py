"""Clips that FFmpeg's command line makes, and its own decoding of them as the reference."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

FFMPEG = shutil.which("ffmpeg")

X264 = ["-c:v", "libx264", "-preset", "fast", "-pix_fmt", "yuv420p"]
X265 = ["-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]

# name -> source filter, encoder arguments
CLIPS = {
    "h264_bframes.mp4": ("testsrc2=s=320x180:r=25:d=6", [*X264, "-g", "30", "-bf", "3"]),
    "h264_faststart.mp4": ("testsrc2=s=320x180:r=25:d=6", [*X264, "-g", "30", "-movflags", "+faststart"]),
    "h264_tagged.mp4": (
        "testsrc2=s=192x128:r=25:d=1",
        [*X264, "-vf", "setsar=4/3", "-x264-params", "colorprim=bt709:transfer=bt709:colormatrix=bt709:fullrange=on"],
    ),
    "h264_one_gop.mp4": ("testsrc2=s=320x180:r=25:d=6", [*X264, "-g", "999", "-sc_threshold", "0"]),
    "h264_long.mp4": (
        "testsrc2=s=1280x720:r=25:d=32",
        ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50"],
    ),
    "h264_4k.mp4": (
        "testsrc2=s=3840x2160:r=25:d=0.2",
        ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "2"],
    ),
    "h264_opengop.mp4": (
        "mandelbrot=s=192x128:r=25",
        [*X264, "-t", "4", "-bf", "3", "-x264-params", "keyint=20:min-keyint=1:scenecut=0:open-gop=1"],
    ),
    "h264_opengop.ts": (
        "mandelbrot=s=192x128:r=25",
        [*X264, "-t", "14", "-bf", "3", "-x264-params", "keyint=20:min-keyint=1:scenecut=0:open-gop=1"],
    ),
    "h264_intra_refresh.mp4": (
        "testsrc2=s=192x128:r=25:d=4",
        [*X264, "-bf", "0", "-x264-params", "keyint=25:intra-refresh=1"],
    ),
    "h264_bframes.mkv": ("testsrc2=s=322x182:r=30:d=12", [*X264, "-g", "45", "-bf", "2"]),
    "h264_fragmented.mp4": (
        "testsrc2=s=192x128:r=25:d=3",
        [*X264, "-g", "25", "-movflags", "frag_keyframe+empty_moov"],
    ),
    "h264_edit_list.mp4": ("testsrc2=s=192x128:r=25:d=3", [*X264, "-g", "25", "-ss", "0.5"]),
    "h264_vfr.mp4": (
        "testsrc2=s=192x128:r=25:d=6",
        [*X264, "-vf", "select='lt(mod(n,7),3)'", "-vsync", "vfr", "-g", "12"],
    ),
    "h264_10bit_444.mp4": (
        "testsrc2=s=161x121:r=25:d=1",
        ["-c:v", "libx264", "-pix_fmt", "yuv444p10le", "-g", "12"],
    ),
    "hevc_opengop.mp4": (
        "mandelbrot=s=192x128:r=25",
        [*X265, "-t", "4", "-x265-params", "keyint=27:min-keyint=1:scenecut=0:bframes=3:open-gop=1:log-level=none"],
    ),
    "vp9.webm": (
        "testsrc2=s=192x128:r=25:d=3",
        ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "30"],
    ),
    "mpeg2.mpg": ("testsrc2=s=192x128:r=25:d=3", ["-c:v", "mpeg2video", "-g", "12", "-bf", "2"]),
    "mpeg4.avi": ("testsrc2=s=192x128:r=25:d=3", ["-c:v", "mpeg4", "-g", "25"]),
    "mjpeg.mov": ("testsrc2=s=192x128:r=25:d=1", ["-c:v", "mjpeg"]),
    "odd_size.mp4": ("testsrc2=s=162x122:r=25:d=1", [*X264, "-vf", "crop=161:121:0:0,format=yuv444p"]),
    "rotated.mp4": ("testsrc2=s=160x96:r=25:d=1", [*X264, "-metadata:s:v", "rotate=90"]),
}

_LAYERS = (
    "ts_number_layers=3:ts_target_bitrate=100,200,300:ts_rate_decimator=4,2,1:ts_periodicity=4:"
    "ts_layer_id=0,2,1,2:ts_layering_mode=3"
)
_VPX = ["-deadline", "realtime", "-cpu-used", "8", "-g", "30", "-b:v", "300k"]
_LAYERED = [*_VPX, "-error-resilient", "1", "-ts-parameters", _LAYERS]
_PYRAMID = [*X264, "-g", "24", "-bf", "3", "-x264-params", "b-pyramid=normal:open-gop=1"]
_X265 = ["-c:v", "libx265", "-preset", "fast", "-x265-params"]
_SVT = ["-c:v", "libsvtav1", "-preset", "10", "-g", "30"]
_MPEG2 = ["-c:v", "mpeg2video", "-g", "12", "-bf", "2"]
_MPEG4 = ["-c:v", "mpeg4", "-g", "25", "-bf", "2"]
_TEST = "testsrc2=s=192x128:r=25:d=3"
_ALTERNATE = ["-auto-alt-ref", "1", "-lag-in-frames", "25", "-cpu-used", "4", "-b:v", "100k"]
_VP9_SPLIT = ["-c:v", "libvpx-vp9", *_ALTERNATE, "-bsf:v", "vp9_superframe_split", "-fflags", "-autobsf"]
_AV1_SPLIT = ["-c:v", "libaom-av1", "-cpu-used", "8", "-bsf:v", "av1_frame_split", "-fflags", "-autobsf"]

# As CLIPS: every codec and container, and the ways in which frames refer to each other.
FORMATS = {
    "h264_pyramid.mp4": (_TEST, _PYRAMID),
    "h264_pyramid.flv": (_TEST, _PYRAMID),
    "h264_pyramid.avi": (_TEST, _PYRAMID),
    "h264_pyramid.h264": (_TEST, _PYRAMID),
    "h264_mbaff.mp4": (_TEST, [*X264, "-g", "24", "-bf", "3", "-x264-params", "interlaced=1"]),
    "h264_mbaff.ts": (_TEST, [*X264, "-g", "24", "-bf", "3", "-x264-params", "interlaced=1"]),
    "h264_422_10bit.ts": (_TEST, ["-c:v", "libx264", "-pix_fmt", "yuv422p10le", "-g", "24"]),
    "h264_program_stream.mpg": (_TEST, [*X264, "-g", "24"]),
    "hevc_pyramid.mkv": (_TEST, [*_X265, "log-level=none:keyint=24:bframes=4"]),
    "hevc_closed_gop.ts": (_TEST, [*_X265, "log-level=none:keyint=24:open-gop=0"]),
    "hevc_10bit_layers.mp4": (_TEST, ["-pix_fmt", "yuv420p10le", *_X265, "log-level=none:keyint=24:temporal-layers=2"]),
    "hevc_fields.ts": (_TEST, [*_X265, "log-level=none:keyint=24:field=1"]),
    "av1_svt.mp4": (_TEST, _SVT),
    "av1_svt.mkv": (_TEST, _SVT),
    "av1_svt.ivf": (_TEST, _SVT),
    "av1_10bit.webm": (_TEST, [*_SVT, "-pix_fmt", "yuv420p10le"]),
    "av1_aom.mkv": (_TEST, ["-c:v", "libaom-av1", "-cpu-used", "8", "-g", "30"]),
    "vp9_layers.webm": (_TEST, ["-c:v", "libvpx-vp9", *_LAYERED]),
    "vp9_layers_that_carry_over.webm": (_TEST, ["-c:v", "libvpx-vp9", *_VPX, "-ts-parameters", _LAYERS]),
    "vp9_superframes.webm": (_TEST, ["-c:v", "libvpx-vp9", *_ALTERNATE]),
    "vp9.mp4": (_TEST, ["-c:v", "libvpx-vp9", *_VPX]),
    "vp9_10bit.webm": (_TEST, ["-c:v", "libvpx-vp9", *_VPX, "-pix_fmt", "yuv420p10le", "-colorspace", "bt2020nc"]),
    "vp9_422.mkv": (_TEST, ["-c:v", "libvpx-vp9", *_VPX, "-pix_fmt", "yuv422p", "-colorspace", "bt709"]),
    "vp9_full_range.mp4": (_TEST, ["-c:v", "libvpx-vp9", *_VPX, "-color_range", "pc", "-colorspace", "smpte170m"]),
    "vp8_layers.webm": (_TEST, ["-c:v", "libvpx", *_LAYERED]),
    "mpeg1.mkv": (_TEST, ["-c:v", "mpeg1video", "-g", "12", "-bf", "2"]),
    "mpeg2.mp4": (_TEST, _MPEG2),
    "mpeg2.ts": (_TEST, _MPEG2),
    "mpeg2.m2v": (_TEST, _MPEG2),
    "mpeg2.vob": (_TEST, _MPEG2),
    "mpeg2_interlaced.ts": (_TEST, [*_MPEG2, "-flags", "+ildct+ilme"]),
    "mpeg4.mp4": (_TEST, _MPEG4),
    "mpeg4_bframes.avi": (_TEST, _MPEG4),
    "mpeg4.mkv": (_TEST, _MPEG4),
    "mpeg4_interlaced.mp4": (_TEST, [*_MPEG4, "-flags", "+ildct+ilme"]),
    "mpeg4_packed.avi": (_TEST, ["-c:v", "libxvid", "-g", "25", "-bf", "2"]),
    "h263.3gp": (_TEST, ["-c:v", "h263", "-s", "352x288"]),
    "mjpeg.avi": (_TEST, ["-c:v", "mjpeg"]),
    "prores.mov": (_TEST, ["-c:v", "prores_ks"]),
    "theora.ogv": (_TEST, ["-c:v", "libtheora"]),
    "flv1.flv": (_TEST, ["-c:v", "flv"]),
    "animated.gif": ("testsrc2=s=64x48:r=10:d=2", []),
    "animated.apng": ("testsrc2=s=64x48:r=10:d=2", ["-plays", "0"]),
    "without_cues.mkv": (_TEST, [*X264, "-g", "24", "-f", "matroska", "-live", "1"]),
    "starts_late.ts": (_TEST, [*X264, "-g", "24", "-output_ts_offset", "3600"]),
}

# As CLIPS: frames that are not shown have packets of their own.
HIDDEN = {
    "vp8_hidden.webm": (_TEST, ["-c:v", "libvpx", *_ALTERNATE]),
    "vp8_hidden.ivf": (_TEST, ["-c:v", "libvpx", *_ALTERNATE]),
    "vp9_hidden.webm": (_TEST, _VP9_SPLIT),
    "vp9_hidden.mp4": (_TEST, _VP9_SPLIT),
    "av1_hidden.mkv": (_TEST, _AV1_SPLIT),
    "av1_hidden.ivf": (_TEST, _AV1_SPLIT),
    "av1_hidden.mp4": (_TEST, _AV1_SPLIT),
}

# As CLIPS: frames that have a time together, of which the first one to be decoded is not the first one to be shown.
SAME_TIMES = {
    "h264_same_times.mp4": (_TEST, [*X264, "-g", "25", "-bf", "3", "-bsf:v", "setts=pts=floor(PTS/1024)*1024+1024"]),
}

ClipMaker = Callable[[str], Path]  # the `clip` fixture


def run_ffmpeg(*arguments: str) -> bytes:
    assert FFMPEG is not None
    command = [FFMPEG, "-nostdin", "-v", "error", *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def frame_hashes(path: Path, stream: int) -> list[str]:
    """MD5 of each frame's raw planes as FFmpeg puts them out, in order."""
    lines = run_ffmpeg(
        *("-noautorotate", "-threads", "1", "-i", str(path), "-map", f"0:{stream}"),
        *("-autoscale", "0", "-vsync", "passthrough", "-f", "framemd5", "-"),
    ).decode()
    return [line.split(",")[-1].strip() for line in lines.splitlines() if line and not line.startswith("#")]


def hashes(frames: list[npt.NDArray[np.uint8]]) -> list[str]:
    return [hashlib.md5(frame.tobytes()).hexdigest() for frame in frames]


def packet_places(path: Path) -> list[tuple[int, int]]:
    """(offset, bytes) of each packet of the video stream, in decoding order."""
    ffprobe = shutil.which("ffprobe")
    if ffprobe is None:
        pytest.skip("no ffprobe")
    command = [ffprobe, "-v", "error", "-select_streams", "v:0", "-show_entries", "packet=pos,size", "-of", "json"]
    packets = json.loads(subprocess.run([*command, str(path)], check=True, capture_output=True).stdout)["packets"]
    return [(int(packet["pos"]), int(packet["size"])) for packet in packets]


def without_packets(path: Path, packets: range) -> bytes:
    """The file with zeros in place of packets, in decoding order."""
    places = packet_places(path)
    data = bytearray(path.read_bytes())
    for number in packets:
        offset, size = places[number]
        data[offset : offset + size] = bytes(size)
    return bytes(data)
