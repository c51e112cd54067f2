"""IVF: VP8, VP9 and AV1 with a time a frame, no order of decoding and no key flags."""

import struct

from faulty_files.recording import Packet, Recording

_HEADER_BYTES = 32
_FRAME = "<IQ"


def read(data: bytes) -> Recording:
    packets = []
    at = _HEADER_BYTES
    while at < len(data):
        size, time = struct.unpack_from(_FRAME, data, at)
        at += struct.calcsize(_FRAME)
        packets.append(Packet(data[at : at + size], time, None, key=False))
        at += size
    ticks, per = struct.unpack_from("<II", data, 16)
    return Recording((data[:_HEADER_BYTES],), tuple(packets), ticks // per)


def write(recording: Recording) -> bytes:
    frames = [
        struct.pack(_FRAME, len(packet.data), (packet.pts or 0) % 2**64) + packet.data for packet in recording.packets
    ]
    return recording.headers[0] + b"".join(frames)
