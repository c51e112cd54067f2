"""Write small videos, sound and faulty, to be decoded by cores and by NVDEC elsewhere.

python bench/gpu/make_videos.py --out bench/gpu/carry/videos

Needs an FFmpeg with encoders. The files are drawn as those of flashcodec/fuzz/against_ffmpeg.py.
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write small videos, sound and faulty.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the archive and cases.json")
    options = parser.parse_args()
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.gpu import video_files

    print(f"{video_files.write(options.out)} videos in {options.out}")


if __name__ == "__main__":
    main()
