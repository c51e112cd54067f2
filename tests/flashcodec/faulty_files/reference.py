"""What FFmpeg's command line makes of a file."""

import json
import re
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# What FFmpeg says of files that are decoded as they are meant to be, most of it of their times and flags.
_NO_DAMAGE = re.compile(
    r"deprecated|non.?monoton|out of order|Invalid DTS|Invalid timestamps|timestamps are unset|Estimating duration|"
    r"Application provided|discontinuity|Last message repeated|could not be determined|Past duration|"
    r"Could not find codec parameters|Consider increasing|not enough frames|video_delay is larger|"
    r"Missing key frame while searching|Negative cts|Could not find first.* I-frame|Cannot find an index entry|"
    r"This is a bug|DTS discontinuity|overwriting|Format .* detected only with low score|"
    r"If you want to help|Stream #0: not enough|Packet duration|Invalid stream index|Found duplicated MOOV",
    re.IGNORECASE,
)
_DECODE = ["-map", "0:v:0", "-autoscale", "0", "-vsync", "passthrough", "-enc_time_base", "-1", "-f", "framemd5", "-"]


@dataclass(frozen=True)
class Reference:
    """FFmpeg's frames in sequence.

    Attributes:
        frames: the MD5 of each frame's planes.
        times: when each is shown, in seconds, as far as the command line knows or guesses.
        complaints: what FFmpeg says of damage.
    """

    path: Path
    frames: list[str]
    times: list[float]
    complaints: list[str]

    @classmethod
    def of(cls, path: Path) -> "Reference":
        command = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-v", "level+warning", "-noautorotate", "-copyts"]
        command += ["-threads", "1", "-i", str(path), *_DECODE]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        lines = done.stdout.splitlines()
        rows = [line.split(",") for line in lines if line and not line.startswith("#")]
        ticks = next((line.split()[-1].split("/") for line in lines if line.startswith("#tb")), ["0", "1"])
        times = [int(row[2]) * int(ticks[0]) / int(ticks[1]) for row in rows]
        complaints = [line for line in done.stderr.splitlines() if not _NO_DAMAGE.search(line)]
        return cls(path, [row[-1].strip() for row in rows], times, complaints)

    def exact_times(self) -> list[float] | None:
        """Return the frames' own times; None if a frame has none, or if they are not in order."""
        if self.path.suffix == ".bin":  # a bare stream has no times of its own
            return None
        command = ["ffprobe", "-v", "quiet", "-threads", "1", "-select_streams", "v:0", "-of", "json"]
        done = subprocess.run([*command, "-show_entries", "frame=pts_time", str(self.path)], capture_output=True)
        frames = json.loads(done.stdout)["frames"]
        times = [float(frame["pts_time"]) for frame in frames if "pts_time" in frame]
        usable = len(times) == len(self.frames) and all(before < after for before, after in pairwise(times))
        return times if usable else None
