"""What to beware of in a video: each finding is a code for programs and a sentence for people."""

from collections.abc import Iterator

import numpy as np

from flashcodec.bitstream import Bitstream, Gop

_LONG_GOP_SECONDS = 12.0
_SMALL_FILE = 1 << 20

Finding = tuple[str, str]


def findings(video: Bitstream, bytes_read: int, file_size: int) -> Iterator[Finding]:
    """`bytes_read` is how much of the file its analysis took."""
    if file_size > _SMALL_FILE and bytes_read >= 0.9 * file_size:
        yield "no-index", "no index: the whole file is read to find its frames (MP4 or MKV with an index opens at once)"
    yield from _header_findings(video)
    yield from _gop_findings(video)
    yield from _time_findings(video)
    yield from _picture_findings(video)


def is_open(video: Bitstream, gop: Gop) -> bool:
    """Whether frames of this GOP are shown before its key frame."""
    keys = video.key_frames
    key = int(keys[min(int(np.searchsorted(keys, gop.first_frame)), len(keys) - 1)])
    return gop.first_frame < key < gop.last_frame


def _header_findings(video: Bitstream) -> Iterator[Finding]:
    meta = video.metadata
    claimed = meta.duration_seconds_from_header
    if claimed is None:
        yield "no-duration", "the header has no duration (a live recording, or one that was cut off)"
    elif abs(claimed - meta.duration_seconds) > 0.05 * meta.duration_seconds + 0.1:
        found = f"{meta.duration_seconds:.2f} s"
        yield "duration", f"the header says {claimed:.2f} s, the packets {found} (cut off, or an edit list)"
    if meta.num_frames_from_header not in (None, meta.num_frames):
        yield "frame-count", f"the header says {meta.num_frames_from_header} frames, there are {meta.num_frames}"


def _gop_findings(video: Bitstream) -> Iterator[Finding]:
    gops = video.gops
    packets = gops[-1].last_packet - gops[0].first_packet
    if gops[0].first_packet > 0:
        yield "no-key-frame", f"the first {gops[0].first_packet} packets cannot be decoded: no key frame before them"
    if packets > video.num_frames:
        hidden = f"{packets - video.num_frames} of {packets} packets show no frame"
        yield "hidden-packets", f"{hidden} (an edit list cuts them off, or they are references only)"
    opened = sum(is_open(video, gop) for gop in gops)
    if opened:
        text = f"open GOPs ({opened} of {len(gops)}): some decoders return wrong frames when they seek here"
        yield "open-gop", text
    longest = max(
        video.pts_seconds[gop.last_frame - 1] - video.pts_seconds[gop.first_frame]
        for gop in gops
        if gop.last_frame > gop.first_frame
    )
    if longest > _LONG_GOP_SECONDS:
        yield "long-gop", f"up to {longest:.1f} s from one key frame to the next: frames on the way are costly to reach"


def _time_findings(video: Bitstream) -> Iterator[Finding]:
    begin = video.metadata.begin_stream_seconds
    if abs(begin) > 0.001:
        yield "start-time", f"the first frame is shown at {begin:.3f} s, not at 0"
    distances = np.diff(video.pts_seconds)
    if distances.size and distances.max() > 1.5 * max(distances.min(), 1e-6):
        rates = f"{1 / distances.max():.3g} to {1 / max(distances.min(), 1e-6):.3g} fps"
        yield "variable-rate", f"variable frame rate ({rates}): sample by time, not by frame number"


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
