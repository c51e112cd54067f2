"""Faults: what muxers, editors and recorders do to a video that other programs then have to read.

Each takes a recording and whole numbers, which it takes modulo what there is: any numbers do.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from faulty_files.recording import Packet, Recording


class Fault(NamedTuple):
    """`numbers` is how many `apply` takes."""

    numbers: int
    apply: Callable[..., Recording]


def _with(recording: Recording, packets: Sequence[Packet]) -> Recording:
    return replace(recording, packets=tuple(packets))


def keys_all(recording: Recording) -> Recording:
    return _with(recording, [replace(packet, key=True) for packet in recording.packets])


def keys_none(recording: Recording) -> Recording:
    return _with(recording, [replace(packet, key=False) for packet in recording.packets])


def keys_random(recording: Recording, seed: int) -> Recording:
    rng = random.Random(seed)
    return _with(recording, [replace(packet, key=rng.random() < 0.3) for packet in recording.packets])


def keys_shifted(recording: Recording, by: int) -> Recording:
    keys = [packet.key for packet in recording.packets]
    by = 1 + by % 3
    packets = zip(recording.packets, [*[False] * by, *keys], strict=False)
    return _with(recording, [replace(packet, key=key) for packet, key in packets])


def keys_thinned(recording: Recording) -> Recording:
    """Flag the first key frame only."""
    first = next((n for n, packet in enumerate(recording.packets) if packet.key), 0)
    return _with(recording, [replace(packet, key=n == first) for n, packet in enumerate(recording.packets)])


def pts_is_dts(recording: Recording) -> Recording:
    """Have times in the order of decoding only, as writers do that know of no reordering."""
    times = sorted(packet.pts for packet in recording.packets if packet.pts is not None)
    if len(times) < len(recording.packets):
        return recording
    pairs = zip(recording.packets, times, strict=True)
    return _with(recording, [replace(packet, pts=time, dts=time) for packet, time in pairs])


def pts_shuffled(recording: Recording, seed: int) -> Recording:
    rng = random.Random(seed)
    times = [packet.pts for packet in recording.packets]
    for first in range(0, len(times), 4):
        part = times[first : first + 4]
        rng.shuffle(part)
        times[first : first + 4] = part
    return _with(recording, [replace(packet, pts=time) for packet, time in zip(recording.packets, times, strict=True)])


def time_doubled(recording: Recording, at: int) -> Recording:
    """Give a packet the times of the one before."""
    if len(recording.packets) < 2:
        return recording
    at = 1 + at % (len(recording.packets) - 1)
    before, packet = recording.packets[at - 1 : at + 1]
    packets = list(recording.packets)
    packets[at] = replace(packet, pts=before.pts, dts=before.dts)
    return _with(recording, packets)


def time_missing(recording: Recording, at: int, every: int) -> Recording:
    """Take the times of a packet, and of each `every`th after it."""
    at, every = at % len(recording.packets), 1 + every % 5
    blank = range(at, len(recording.packets), every)
    return _with(
        recording,
        [replace(packet, pts=None, dts=None) if n in blank else packet for n, packet in enumerate(recording.packets)],
    )


def clock_restarts(recording: Recording, at: int, by: int) -> Recording:
    """Have the clock go back at a packet."""
    at = at % len(recording.packets)
    back = _frame_ticks(recording) * (1 + by % 60)
    packets = [_moved(packet, -back if n >= at else 0) for n, packet in enumerate(recording.packets)]
    return _with(recording, packets)


def clock_jumps(recording: Recording, at: int, by: int) -> Recording:
    at = at % len(recording.packets)
    ahead = recording.ticks * (1 + by % 40)
    return _with(recording, [_moved(packet, ahead if n >= at else 0) for n, packet in enumerate(recording.packets)])


def begins_late(recording: Recording, at: int) -> Recording:
    """Leave out what is before a packet."""
    return _with(recording, recording.packets[at % len(recording.packets) :])


def ends_early(recording: Recording, at: int) -> Recording:
    return _with(recording, recording.packets[: 1 + at % len(recording.packets)])


def lost(recording: Recording, at: int, count: int) -> Recording:
    """Leave out a few packets."""
    at, count = at % len(recording.packets), 1 + count % 4
    return _with(recording, recording.packets[:at] + recording.packets[at + count :] or recording.packets[:1])


def repeated(recording: Recording, at: int) -> Recording:
    """Have a packet twice."""
    at = at % len(recording.packets)
    return _with(recording, recording.packets[: at + 1] + recording.packets[at:])


def emptied(recording: Recording, at: int) -> Recording:
    """Have a packet of no bytes, as AVI has for a frame that is to be shown for longer."""
    at = at % len(recording.packets)
    packets = list(recording.packets)
    packets[at] = replace(packets[at], data=b"")
    return _with(recording, packets)


def edited(recording: Recording, begin: int, length: int) -> Recording:
    """Show a part only, by an edit list."""
    frame = _frame_ticks(recording)
    count = len(recording.packets)
    start = recording.edits[-1][1] if recording.edits else 0
    return replace(recording, edits=((frame * (1 + length % count), start + frame * (begin % count)),))


def edited_twice(recording: Recording, begin: int, length: int) -> Recording:
    """Show nothing for a while, and then two parts."""
    frame = _frame_ticks(recording)
    count = len(recording.packets)
    begin, length = begin % count, 1 + length % count
    return replace(recording, edits=((frame * 5, -1), (frame * length, frame * begin), (frame * length, 0)))


def joined(recording: Recording, other: Recording, end: int, begin: int) -> Recording:
    """Go on with another video from one of its packets on, its times behind those of the first one."""
    return _joined(recording, other, end, begin, restart=False)


def joined_restarting(recording: Recording, other: Recording, end: int, begin: int) -> Recording:
    """Go on with another video, which keeps its own times."""
    return _joined(recording, other, end, begin, restart=True)


def _joined(recording: Recording, other: Recording, end: int, begin: int, restart: bool) -> Recording:
    first = recording.packets[: 1 + end % len(recording.packets)]
    second = other.packets[begin % len(other.packets) :]
    headers = [*recording.headers]
    numbers = []
    for header in other.headers:
        if header not in headers:
            headers.append(header)
        numbers.append(headers.index(header))
    frame = _frame_ticks(recording)
    second = tuple(_rescaled(packet, recording.ticks, other.ticks) for packet in second)
    move = 0 if restart else _end(first) + frame - min(_times(second), default=0)
    moved = [replace(_moved(packet, move), header=numbers[packet.header]) for packet in second]
    return replace(recording, headers=tuple(headers), packets=first + tuple(moved), edits=())


def _rescaled(packet: Packet, ticks: int, from_ticks: int) -> Packet:
    return replace(
        packet,
        pts=None if packet.pts is None else packet.pts * ticks // from_ticks,
        dts=None if packet.dts is None else packet.dts * ticks // from_ticks,
    )


def _moved(packet: Packet, by: int) -> Packet:
    return replace(
        packet,
        pts=None if packet.pts is None else packet.pts + by,
        dts=None if packet.dts is None else packet.dts + by,
    )


def _times(packets: Sequence[Packet]) -> list[int]:
    return [packet.pts for packet in packets if packet.pts is not None]


def _end(packets: Sequence[Packet]) -> int:
    return max(_times(packets), default=0)


def _frame_ticks(recording: Recording) -> int:
    return recording.ticks // 25


FAULTS = {
    "keys_all": Fault(0, keys_all),
    "keys_none": Fault(0, keys_none),
    "keys_random": Fault(1, keys_random),
    "keys_shifted": Fault(1, keys_shifted),
    "keys_thinned": Fault(0, keys_thinned),
    "pts_is_dts": Fault(0, pts_is_dts),
    "pts_shuffled": Fault(1, pts_shuffled),
    "time_doubled": Fault(1, time_doubled),
    "time_missing": Fault(2, time_missing),
    "clock_restarts": Fault(2, clock_restarts),
    "clock_jumps": Fault(2, clock_jumps),
    "begins_late": Fault(1, begins_late),
    "ends_early": Fault(1, ends_early),
    "lost": Fault(2, lost),
    "repeated": Fault(1, repeated),
    "emptied": Fault(1, emptied),
    "edited": Fault(2, edited),
    "edited_twice": Fault(2, edited_twice),
}

# Their first number chooses the other recording.
JOINTS = {
    "joined": Fault(3, joined),
    "joined_restarting": Fault(3, joined_restarting),
}
