"""Find what to beware of in a video. Each finding is a code for programs and a sentence for people."""

from collections.abc import Iterator

import numpy as np

from flashcodec.bitstream import Bitstream, Gop
from flashcodec.cli.console import clock

_LONG_GOP_SECONDS = 12.0
_LATE_START_SECONDS = 0.1
_GAP_SECONDS = 1.0
_IRREGULAR_SHARE = 0.02

Finding = tuple[str, str]


def findings(video: Bitstream) -> Iterator[Finding]:
    yield from _container_findings(video)
    yield from _gop_findings(video)
    yield from _time_findings(video)
    yield from _picture_findings(video)


def is_open(video: Bitstream, gop: Gop) -> bool:
    """Tell whether frames of this GOP are shown before its key frame."""
    keys = video.key_frames[np.searchsorted(video.key_frames, gop.first_frame) :]
    return keys.size > 0 and gop.first_frame < int(keys[0]) < gop.last_frame


def _container_findings(video: Bitstream) -> Iterator[Finding]:
    meta = video.metadata
    for doubt in video.doubts:
        yield "not-trusted", f"the container's {doubt.claim} are not believed ({doubt.reason})"
    if video.core.scanned:
        yield "no-index", "no table of frames: the whole file is read to find them (MP4 and MOV have one)"
    claimed = meta.duration_seconds_from_header
    if claimed is not None and abs(claimed - meta.duration_seconds) > 0.05 * meta.duration_seconds + 0.1:
        yield "duration", f"the header says {claimed:.2f} s, the packets {meta.duration_seconds:.2f} s"
    if meta.num_frames_from_header not in (None, meta.num_frames, video.core.num_packets):
        yield "frame-count", f"the header says {meta.num_frames_from_header} frames, there are {meta.num_frames}"


def _gop_findings(video: Bitstream) -> Iterator[Finding]:
    gops, packets = video.gops, video.core.num_packets
    if gops[0].first_packet > 0:
        yield "no-key-frame", f"the first {gops[0].first_packet} packets cannot be decoded: no key frame before them"
    if packets > video.num_frames:
        hidden = f"{packets - video.num_frames} of {packets} packets show no frame"
        yield "hidden-packets", f"{hidden} (an edit list cuts them off, or they are references only)"
    opened = sum(is_open(video, gop) for gop in gops)
    if opened:
        yield "open-gop", f"open GOPs ({opened} of {len(gops)}): some decoders return wrong frames when they seek here"
    distances = np.diff([*video.pts_seconds[video.key_frames], video.metadata.end_stream_seconds])
    if distances.size and distances.max() > _LONG_GOP_SECONDS:
        text = f"up to {distances.max():.1f} s from one key frame to the next"
        yield "long-gop", f"{text}: frames on the way are costly to reach"


def _time_findings(video: Bitstream) -> Iterator[Finding]:
    begin = video.metadata.begin_stream_seconds
    if abs(begin) > _LATE_START_SECONDS:
        yield "start-time", f"the first frame is shown at {begin:.3f} s, not at 0"
    distances = np.diff(video.pts_seconds)
    if distances.size == 0:
        return
    usual, longest = float(np.median(distances)), int(distances.argmax())
    if (np.abs(distances - usual) > 0.5 * usual).mean() > _IRREGULAR_SHARE:
        shortest = distances[distances > 0].min(initial=distances[longest])
        rates = f"{1 / distances[longest]:.3g} to {1 / shortest:.3g} fps"
        yield "variable-rate", f"variable frame rate ({rates}): sample by time, not by frame number"
    elif distances[longest] > max(_GAP_SECONDS, 10 * usual):
        where = clock(video.pts_seconds[longest])
        yield "gap", f"one frame stands for {distances[longest]:.2f} s, at {where}: part of the video may be missing"


def _picture_findings(video: Bitstream) -> Iterator[Finding]:
    meta = video.metadata
    if meta.rotation:
        yield "rotation", f"rotated by {meta.rotation:g} degrees: sizes are those of the upright picture"
    if meta.pixel_aspect_ratio not in (None, 1):
        ratio = meta.pixel_aspect_ratio
        assert ratio is not None
        text = f"pixels are not square ({ratio.numerator}:{ratio.denominator})"
        yield "pixel-aspect-ratio", f"{text}: decoded frames look stretched until resized"
    if meta.color_transfer_characteristic in ("smpte2084", "arib-std-b67"):
        text = f"HDR ({meta.color_transfer_characteristic}): converted to RGB without tone mapping"
        yield "hdr", text
