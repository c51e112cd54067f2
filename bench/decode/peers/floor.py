"""The floor: what FFmpeg's decoder needs for the packets that must be decoded, and nothing else.

A frame needs its own packet, and before it those since the key frame at or before it in time that other frames refer
to. Each core has a single-threaded decoder and a share of these packets, which lie in memory; nothing is converted.
H.264 and HEVC say which packets are no reference; for other codecs all count as references, so that there the floor
can be a little too high.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import av
from av.video.codeccontext import VideoCodecContext

from peers.sharing import Indices


@dataclass
class Work:
    """CPU seconds and numbers of packets, by kind: True for those that are references."""

    seconds: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    packets: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def add(self, other: "Work") -> None:
        for kind in (True, False):
            self.seconds[kind] += other.seconds[kind]
            self.packets[kind] += other.packets[kind]


def floor(path: str, indices: Indices, threads: int) -> dict[str, float]:
    """Measure wall and CPU seconds of decoding, and count packets; all else is done before the clock starts."""
    with av.open(path) as container:
        template = container.streams.video[0].codec_context
        packets = [packet for packet in container.demux(video=0) if packet.size]
        runs = list(needed(packets, indices, template.codec.name))
        shares: list[list[list[tuple[av.Packet, bool]]]] = [[] for _ in range(threads)]
        for run in sorted(runs, key=len, reverse=True):
            min(shares, key=lambda share: sum(map(len, share))).append(run)
        decoders = [decoder_like(template) for _ in range(threads)]
        total = Work()
        with ThreadPoolExecutor(threads) as pool:
            began = time.perf_counter()
            for work in pool.map(decode, decoders, shares):
                total.add(work)
            wall = time.perf_counter() - began
    return {
        "wall": wall,
        "cpu": sum(total.seconds.values()),
        "packets": sum(total.packets.values()),
        "of_packets": len(packets),
        "reference_ms": 1e3 * total.seconds[True] / max(1, total.packets[True]),
        "other_ms": 1e3 * total.seconds[False] / max(1, total.packets[False]),
    }


def decoder_like(template: VideoCodecContext) -> VideoCodecContext:
    context: VideoCodecContext = av.CodecContext.create(template.codec.name, "r")  # type: ignore[assignment]
    context.extradata = template.extradata
    context.thread_count = 1
    context.thread_type = "NONE"
    return context


def needed(packets: list[av.Packet], indices: Indices, codec: str) -> Iterator[list[tuple[av.Packet, bool]]]:
    """Yield runs of packets to decode, each from a key packet on, and whether they are references."""
    order = sorted(range(len(packets)), key=lambda number: packets[number].pts or 0)
    targets = {order[index] for index in indices.tolist()}
    keys = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    spans: list[tuple[int, int]] = []
    for target in sorted(targets):
        starts = (key for key in reversed(keys) if key <= target and packets[key].pts <= packets[target].pts)
        start = next(starts, 0)
        if spans and start <= spans[-1][1]:
            spans[-1] = (min(start, spans[-1][0]), target)
        else:
            spans.append((start, target))
    for first, last in spans:
        shown = [number for number in range(first, last + 1) if packets[number].pts >= packets[first].pts]
        span = [(number, is_reference(packets[number], codec)) for number in shown]
        yield [(packets[number], reference) for number, reference in span if reference or number in targets]


def is_reference(packet: av.Packet, codec: str) -> bool:
    return not packet.is_disposable and (codec != "h264" or h264_reference(bytes(packet)))


def h264_reference(packet: bytes) -> bool:
    """Say whether the first slice of an MP4's packet has a nal_ref_idc other than 0 (H.264, 7.4.1)."""
    at = 0
    while at + 4 < len(packet):
        header = packet[at + 4]
        if header & 31 in (1, 5):
            return header >> 5 & 3 != 0
        at += 4 + int.from_bytes(packet[at : at + 4], "big")
    return True


def decode(decoder: VideoCodecContext, runs: list[list[tuple[av.Packet, bool]]]) -> Work:
    work = Work()
    for run in runs:
        for packet, reference in run:
            began = time.thread_time()
            decoder.decode(packet)
            work.seconds[reference] += time.thread_time() - began
            work.packets[reference] += 1
        decoder.flush_buffers()
    return work
