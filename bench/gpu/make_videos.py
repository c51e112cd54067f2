"""Write small videos, and which frames this machine's cores decode of them, to compare with NVDEC's elsewhere.

python bench/gpu/make_videos.py --out bench/gpu/carry/videos

Needs an FFmpeg with encoders. The files are drawn as those of flashcodec/fuzz/against_ffmpeg.py.
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write small videos and the frames that cores decode of them.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the archive and expected.json")
    options = parser.parse_args()
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.gpu import video_files

    print(f"{video_files.write(options.out)} videos in {options.out}")


if __name__ == "__main__":
    main()
