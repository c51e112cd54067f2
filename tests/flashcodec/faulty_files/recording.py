"""A video as its packets, in the order of decoding, whatever container it came in."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Packet:
    """One coded picture, or what the container has for one; times are in ticks.

    Attributes:
        pts, dts: None where the container has none; a container without them loses them when it is written.
        key: whether the container flags it as a key frame.
        header: which of the recording's headers it belongs to.
        side: what the container gives out just before it, such as a palette.
    """

    data: bytes
    pts: int | None
    dts: int | None
    key: bool
    header: int = 0
    side: bytes = b""


@dataclass(frozen=True)
class Recording:
    """Packets, and what the container has beside them.

    Attributes:
        headers: what begins the stream (parameter sets and the like), in the container's own form; several where
            videos were joined.
        ticks: ticks per second.
        edits: (duration, media time) of each entry of an edit list, both in ticks; -1 is an empty edit.
    """

    headers: tuple[bytes, ...]
    packets: tuple[Packet, ...]
    ticks: int
    edits: tuple[tuple[int, int], ...] = ()

    def timed(self) -> "Recording":
        """Return it with the times of the packet before for packets that have none, as containers need them."""
        packets: list[Packet] = []
        for packet in self.packets:
            before = packets[-1] if packets else Packet(b"", 0, 0, key=False)
            pts = before.pts if packet.pts is None else packet.pts
            packets.append(replace(packet, pts=pts, dts=before.dts if packet.dts is None else packet.dts))
        return replace(self, packets=tuple(packets))
