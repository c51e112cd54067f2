"""Small videos to begin with: heads and short pieces of those in a folder, and generated ones."""

import argparse
import subprocess
from pathlib import Path

MAX_BYTES = 300_000

# Suffix -> encoder arguments; a second of 96x64 each. What the installed FFmpeg cannot encode is left out.
GENERATED = {
    "h264.mp4": "-c:v libx264 -g 8 -bf 3",
    "h264_fragmented.mp4": "-c:v libx264 -g 8 -movflags frag_keyframe+empty_moov",
    "h264_edit_list.mp4": "-c:v libx264 -g 8 -ss 0.3",
    "h264_open_gop.ts": "-c:v libx264 -x264-params keyint=8:open-gop=1:bframes=3",
    "h264_intra_refresh.h264": "-c:v libx264 -x264-params intra-refresh=1:keyint=12:bframes=0",
    "h264.flv": "-c:v libx264 -g 8",
    "hevc.mp4": "-c:v libx265 -x265-params keyint=8:bframes=3:log-level=none",
    "hevc.mkv": "-c:v libx265 -x265-params keyint=8:bframes=3:log-level=none",
    "vp8.webm": "-c:v libvpx -g 8 -b:v 200k",
    "vp9.webm": "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 8",
    "vp9.ivf": "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 8",
    "av1.mp4": "-c:v libsvtav1 -preset 12 -g 8",
    "mpeg1.mpg": "-c:v mpeg1video -g 8",
    "mpeg2.ts": "-c:v mpeg2video -g 8 -bf 2",
    "mpeg4.avi": "-c:v mpeg4 -g 8 -bf 2",
    "mjpeg.mov": "-c:v mjpeg",
    "prores.mov": "-c:v prores_ks",
    "animation.gif": "",
    "animation.webp": "-c:v libwebp_anim",
    "theora.ogg": "-c:v libtheora",
}


def ffmpeg(*arguments: str) -> bool:
    command = ["ffmpeg", "-nostdin", "-v", "error", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120).returncode == 0


def generate(out: Path) -> None:
    for name, encoder in GENERATED.items():
        source = ["-f", "lavfi", "-i", "testsrc2=s=96x64:r=16:d=1", "-threads", "1"]
        if not ffmpeg(*source, *encoder.split(), "-y", str(out / name)):
            (out / name).unlink(missing_ok=True)


def shorten(video: Path, out: Path) -> None:
    """The file itself if it is small; else its head, and its first frames in a new container."""
    data = video.read_bytes()
    if len(data) <= MAX_BYTES:
        (out / video.name).write_bytes(data)
        return
    (out / f"head_{video.name}").write_bytes(data[:MAX_BYTES])
    piece = out / f"piece_{video.stem}{video.suffix.lower()}"
    done = ffmpeg("-i", str(video), "-map", "0:v:0", "-c", "copy", "-frames:v", "12", "-y", str(piece))
    if not done or piece.stat().st_size > MAX_BYTES:
        piece.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--videos", type=Path, help="folder with videos, searched through and through")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    generate(arguments.out)
    if arguments.videos is not None:
        for video in sorted(arguments.videos.rglob("*")):
            if video.is_file() and video.suffix != ".md":
                shorten(video, arguments.out)
    print(f"{len(list(arguments.out.iterdir()))} files")


if __name__ == "__main__":
    main()
