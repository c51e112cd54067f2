"""Read TorchCodec's custom_frame_mappings, and compare them with what analysis found."""

import json
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Readable(Protocol):
    """Read an open file."""

    def read(self) -> str | bytes: ...


Mappings = str | bytes | Readable


def read_mappings(mappings: Mappings) -> npt.NDArray[np.int64]:
    """Return the times that mappings tell, int64 [n] in units of the stream. They ascend.

    Raises ValueError unless they are JSON of {"frames": [{"pts", "duration", "key_frame"}, ...]}; "pkt_pts" and
    "pkt_duration" stand for the first two as well.
    """
    try:
        found: Any = json.loads(mappings if isinstance(mappings, str | bytes) else mappings.read())
    except ValueError as error:
        raise ValueError(f"Invalid custom frame mappings: {error}. Give valid JSON, or a file of it.") from error
    if not isinstance(found, dict) or not found.get("frames"):
        raise ValueError("Invalid custom frame mappings. The input is empty or missing the required 'frames' key.")
    try:
        times = [_time_of(frame) for frame in found["frames"]]
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            "Invalid custom frame mappings. The 'pts'/'pkt_pts', 'duration'/'pkt_duration', and 'key_frame' keys are "
            "required in the frame metadata: integers."
        ) from error
    return np.sort(np.array(times, np.int64))


def check_mappings(times: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]) -> None:
    """Raise ValueError unless these times match a stream's `seconds` [n] except for the unit."""
    if len(times) != len(seconds):
        raise ValueError(f"custom_frame_mappings are of {len(times)} frames, the stream has {len(seconds)}")
    units, span = times - times[0], seconds[-1] - seconds[0]
    if span == 0:
        return
    off = np.abs((seconds - seconds[0]) * (units[-1] / span) - units)
    if off.max() > 1:
        frame = int(off.argmax())
        raise ValueError(f"custom_frame_mappings do not fit the stream: its frame {frame} has another time")


def _time_of(frame: dict[str, Any]) -> int:
    _number(frame, "duration", "pkt_duration")
    _number(frame, "key_frame")
    return _number(frame, "pts", "pkt_pts")


def _number(frame: dict[str, Any], name: str, older_name: str | None = None) -> int:
    return int(frame[older_name if older_name in frame else name])
