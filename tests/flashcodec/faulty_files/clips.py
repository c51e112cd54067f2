"""The videos that faults are put into: each codec, and the ways in which its frames refer to each other."""

import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

_GOP = 12
_SOURCE = "testsrc2=s=96x64:r=25:d=1.44"
_SHORT = "testsrc2=s=64x48:r=25:d=0.72"  # where encoders are slow
_TABLES = "mp4 fragments mkv"
_MOVIES = "mov mkv"
_MPEG = f"{_TABLES} avi ts raw"
_AV1 = "mp4 mkv ivf"  # FFmpeg 5.1 shows frames that fragments hide, later ones do not


@dataclass(frozen=True)
class Clip:
    """What FFmpeg encodes.

    Attributes:
        codec: clips of one codec can be joined.
        encoder: arguments of FFmpeg's encoder.
        containers: those that may hold it.
        source: FFmpeg's source filter.
    """

    codec: str
    encoder: str
    containers: tuple[str, ...]
    source: str = _SOURCE

    @property
    def pixels(self) -> str:
        """Return the pixel format that the encoder is told, if it is told one."""
        words = self.encoder.split()
        return words[words.index("-pix_fmt") + 1] if "-pix_fmt" in words else "yuv420p"


def _clips(codec: str, containers: str, encoders: dict[str, str], source: str = _SOURCE) -> dict[str, Clip]:
    return {name: Clip(codec, encoder, tuple(containers.split()), source) for name, encoder in encoders.items()}


def _x264(parameters: str) -> str:
    return f"libx264 -pix_fmt yuv420p -x264-params keyint={_GOP}:scenecut=0:{parameters}"


def _x265(parameters: str) -> str:
    return f"libx265 -preset ultrafast -x265-params log-level=none:keyint={_GOP}:scenecut=0:{parameters}"


_VPX = f"-deadline realtime -cpu-used 8 -g {_GOP} -b:v 200k"
_VPX_LAYERS = (
    f"{_VPX} -error-resilient 1 -ts-parameters ts_number_layers=3:ts_target_bitrate=50,100,200:ts_rate_decimator=4,2,1:"
    "ts_periodicity=4:ts_layer_id=0,2,1,2:ts_layering_mode=3"
)
_PALETTES = "[0]split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"

CLIPS = {
    **_clips(
        "h264",
        f"{_TABLES} flv ts raw avi",
        {
            "h264": _x264("bframes=3"),
            "h264_low_delay": _x264("bframes=0"),
            "h264_open_gops": _x264("bframes=3:open-gop=1:b-pyramid=normal"),
            "h264_one_gop": _x264("bframes=2:keyint=999"),
            "h264_intra": _x264("keyint=1"),
            "h264_intra_refresh": _x264("bframes=0:intra-refresh=1"),
            "h264_interlaced": _x264("bframes=2:interlaced=1"),
            "h264_other_size": _x264("bframes=1") + " -s 64x48",
            "h264_deep": "libx264 -pix_fmt yuv422p10le -g 12 -bf 2",
        },
    ),
    **_clips(
        "hevc",
        f"{_TABLES} ts raw",
        {
            "hevc": _x265("bframes=4:open-gop=0"),
            "hevc_open_gops": _x265("bframes=3:open-gop=1"),
            "hevc_one_gop": _x265("bframes=2:keyint=-1"),
            "hevc_intra": _x265("keyint=1"),
            "hevc_intra_refresh": _x265("bframes=0:intra-refresh=1"),
            "hevc_layers": _x265("temporal-layers=2:bframes=3:repeat-headers=1"),
            "hevc_other_size": _x265("bframes=1") + " -s 64x48",
        },
    ),
    **_clips(
        "vp8",
        "mkv ivf avi",
        {
            "vp8": f"libvpx {_VPX}",
            "vp8_hidden": f"libvpx -auto-alt-ref 1 -lag-in-frames 16 -cpu-used 4 -g {_GOP} -b:v 60k",
            "vp8_layers": f"libvpx {_VPX_LAYERS}",
        },
    ),
    **_clips(
        "vp9",
        f"{_TABLES} ivf",
        {
            "vp9": f"libvpx-vp9 {_VPX}",
            "vp9_superframes": f"libvpx-vp9 -auto-alt-ref 1 -lag-in-frames 25 -cpu-used 4 -g {_GOP} -b:v 60k",
            "vp9_layers": f"libvpx-vp9 {_VPX_LAYERS}",
            "vp9_other_size": f"libvpx-vp9 {_VPX} -s 64x48",
        },
    ),
    **_clips(
        "av1",
        _AV1,
        {
            "av1": f"libsvtav1 -preset 10 -g {_GOP}",
            "av1_low_delay": f"libaom-av1 -usage realtime -cpu-used 8 -g {_GOP}",
        },
    ),
    **_clips("av1", _AV1, {"av1_one_gop": "libaom-av1 -cpu-used 8 -g 999"}, _SHORT),
    **_clips("mpeg1", _MPEG, {"mpeg1": f"mpeg1video -g {_GOP} -bf 2", "mpeg1_intra": "mpeg1video -g 1"}),
    **_clips(
        "mpeg2",
        _MPEG,
        {
            "mpeg2": f"mpeg2video -g {_GOP} -bf 2",
            "mpeg2_closed_gops": f"mpeg2video -g {_GOP} -bf 2 -flags +cgop -sc_threshold 1000000000",
            "mpeg2_low_delay": f"mpeg2video -g {_GOP} -bf 0",
            "mpeg2_interlaced": f"mpeg2video -g {_GOP} -bf 2 -flags +ildct+ilme",
            "mpeg2_other_size": f"mpeg2video -g {_GOP} -bf 1 -s 64x48",
        },
    ),
    **_clips(
        "mpeg4",
        f"{_TABLES} avi ts raw",
        {
            "mpeg4": f"mpeg4 -g {_GOP} -bf 2",
            "mpeg4_low_delay": f"mpeg4 -g {_GOP}",
            "mpeg4_interlaced": f"mpeg4 -g {_GOP} -bf 2 -flags +ildct+ilme",
            "mpeg4_one_gop": "mpeg4 -g 999",
            "mpeg4_xvid": f"libxvid -g {_GOP} -bf 2",
        },
    ),
    **_clips("h263", "mov mkv avi", {"h263": f"h263 -g {_GOP} -s 128x96"}),
    **_clips("h263p", "mov mkv avi", {"h263p": f"h263p -g {_GOP}"}),
    **_clips("h261", "mkv", {"h261": f"h261 -g {_GOP} -s 176x144"}),
    **_clips("flv1", "flv mkv avi", {"flv1": f"flv -g {_GOP}"}),
    **_clips("msmpeg4v3", "mkv avi", {"msmpeg4v3": f"msmpeg4 -g {_GOP}"}),
    **_clips("wmv2", "mkv avi", {"wmv2": f"wmv2 -g {_GOP}"}),
    **_clips("mjpeg", "mp4 mkv avi", {"mjpeg": "mjpeg"}),
    **_clips("prores", _MOVIES, {"prores": "prores_ks"}),
    **_clips("dirac", f"{_TABLES} ts", {"vc2": "vc2"}),
    **_clips("ffv1", "mkv avi", {"ffv1": f"ffv1 -g {_GOP}", "ffv1_gray": f"ffv1 -g {_GOP} -pix_fmt gray10le"}),
    **_clips("huffyuv", "mkv avi", {"huffyuv": "ffvhuff"}),
    **_clips("snow", "mkv avi", {"snow": f"snow -strict -2 -g {_GOP}"}),
    **_clips("png", "mp4 mkv avi", {"png": "png"}),
    **_clips("cinepak", "mov mkv avi", {"cinepak": f"cinepak -g {_GOP}"}, _SHORT),
    **_clips("svq1", "mov", {"svq1": f"svq1 -g {_GOP}"}),
    **_clips("qtrle", "mov", {"qtrle": f"qtrle -g {_GOP}"}),
    **_clips("smc", "mov", {"smc": f"smc -g {_GOP} -vf {_PALETTES}"}, _SHORT),
    **_clips("pal8", "avi", {"pal8": f"rawvideo -pix_fmt pal8 -vf {_PALETTES}"}, _SHORT),
    **_clips("msvideo1", "avi mkv", {"msvideo1": f"msvideo1 -g {_GOP}"}),
    **_clips("zmbv", "avi mkv", {"zmbv": f"zmbv -g {_GOP}"}, _SHORT),
    **_clips("flashsv", "flv", {"flashsv": f"flashsv -g {_GOP}"}),
    **_clips("flashsv2", "flv", {"flashsv2": f"flashsv2 -g {_GOP}"}),
    **_clips("rawvideo", "mkv avi", {"rawvideo": "rawvideo -pix_fmt yuv420p"}),
}


def encode(name: str, file_formats: list[str], folder: Path) -> None:
    """Have FFmpeg write a clip in these formats, in files of their names in a new folder."""
    clip = CLIPS[name]
    folder.mkdir(parents=True, exist_ok=True)
    command = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", clip.source]
    passes: list[list[str]] = [[]]
    if "-auto-alt-ref" in clip.encoder:  # which libvpx makes only of what it has seen before
        passes = [["-pass", number, "-passlogfile", str(folder / "pass")] for number in "12"]
    for options in passes:
        encoder = ["-map", "0", "-threads", "1", "-c:v", *clip.encoder.split(), *options, "-f"]
        outputs = [[*encoder, file_format, str(folder / file_format)] for file_format in file_formats]
        subprocess.run([*command, *chain.from_iterable(outputs)], check=True, capture_output=True)


@cache
def available_clips() -> dict[str, Clip]:
    """Return the clips that the installed FFmpeg has an encoder for."""
    command = ["ffmpeg", "-hide_banner", "-encoders"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    encoders = {line.split()[1] for line in lines if line.startswith(" V")}
    return {name: clip for name, clip in CLIPS.items() if clip.encoder.split()[0] in encoders}
