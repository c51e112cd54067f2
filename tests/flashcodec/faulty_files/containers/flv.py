"""FLV: one video track; what begins an H.264 stream is a packet of its own, and may come again."""

from collections.abc import Iterator

from faulty_files.recording import Packet, Recording

_VIDEO, _H264 = 9, 7
_SEQUENCE_HEADER, _PICTURE, _END = 0, 1, 2
_KEY, _INTER = 1, 2
_TICKS = 1000


def read(data: bytes) -> Recording:
    """Headers are the codec's number and, of H.264, its sequence header."""
    header, packets = b"", []
    for time, body in _video_tags(data):
        key, codec = body[0] >> 4 == _KEY, body[0] & 15
        if codec != _H264:
            header = bytes([codec])
            packets.append(Packet(body[1:], time, time, key))
        elif body[1] == _SEQUENCE_HEADER:
            header = bytes([codec]) + body[5:]
        elif body[1] == _PICTURE:
            offset = int.from_bytes(body[2:5], "big", signed=True)
            packets.append(Packet(body[5:], time + offset, time, key))
    return Recording((header,), tuple(packets), _TICKS)


def write(recording: Recording) -> bytes:
    tags = [b"FLV\1\1\0\0\0\x09\0\0\0\0"]
    header = None
    for packet in recording.packets:
        time = packet.dts or 0
        codec, configuration = recording.headers[packet.header][:1], recording.headers[packet.header][1:]
        if codec[0] == _H264 and packet.header != header:
            tags.append(_tag(time, bytes([_KEY << 4 | _H264, _SEQUENCE_HEADER, 0, 0, 0]) + configuration))
        header = packet.header
        tags.append(_tag(time, _video(packet, codec[0])))
    return b"".join(tags)


def _video(packet: Packet, codec: int) -> bytes:
    begin = bytes([(_KEY if packet.key else _INTER) << 4 | codec])
    if codec != _H264:
        return begin + packet.data
    offset = 0 if packet.pts is None else packet.pts - (packet.dts or 0)
    return begin + bytes([_PICTURE]) + (offset & 0xFFFFFF).to_bytes(3, "big") + packet.data


def _video_tags(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 13
    while at + 11 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 4], "big")
        if data[at] == _VIDEO:
            yield int.from_bytes(data[at + 4 : at + 7], "big") | data[at + 7] << 24, data[at + 11 : at + 11 + size]
        at += 15 + size


def _tag(time: int, body: bytes) -> bytes:
    time &= 0xFFFFFFFF
    head = bytes([_VIDEO]) + len(body).to_bytes(3, "big") + (time & 0xFFFFFF).to_bytes(3, "big") + bytes([time >> 24])
    return head + bytes(3) + body + (11 + len(body)).to_bytes(4, "big")
