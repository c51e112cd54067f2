"""A tiny H.264 encoder for what FFmpeg's command line cannot make: field pictures (PAFF).

Macroblocks are raw samples (I_PCM) or skipped. A GOP of four frames: an IDR field with a second field predicted from
it, a pair of fields that are no references, a frame picture, and such a pair again. Section numbers are H.264's.
"""

import numpy as np
import numpy.typing as npt

MACROBLOCKS = 4  # a side of the frame
FRAMES_PER_GOP = 4
_FIELD_ROWS = MACROBLOCKS // 2


class _Bits:
    def __init__(self) -> None:
        self.text = ""

    def u(self, value: int, bits: int = 1) -> "_Bits":
        self.text += format(value, f"0{bits}b")
        return self

    def ue(self, *values: int) -> "_Bits":
        for value in values:
            code = format(value + 1, "b")
            self.text += "0" * (len(code) - 1) + code
        return self

    def align(self) -> "_Bits":
        self.text += "0" * (-len(self.text) % 8)
        return self

    def samples(self, values: npt.NDArray[np.int64]) -> "_Bits":
        self.text += "".join(format(value, "08b") for value in values.ravel())
        return self

    def nal(self, reference: int, kind: int) -> bytes:
        """With stop bit and emulation prevention (7.4.1)."""
        text = self.text + "1"
        text += "0" * (-len(text) % 8)
        payload = bytearray()
        for byte in int(text, 2).to_bytes(len(text) // 8, "big"):
            if byte <= 3 and payload[-2:] == b"\0\0":
                payload.append(3)
            payload.append(byte)
        return bytes([0, 0, 0, 1, reference << 5 | kind]) + bytes(payload)


def _parameter_sets() -> bytes:
    sps = _Bits().u(77, 8).u(0, 8).u(30, 8)  # Main profile
    sps.ue(0, 0, 0, 4, 2).u(0)  # frame_num of 4 bits, order count of 8 bits, two reference frames
    sps.ue(MACROBLOCKS - 1, _FIELD_ROWS - 1).u(0b00100, 5)  # field pictures, 8x8 inference, no cropping, no VUI
    pps = _Bits().ue(0, 0).u(0, 2).ue(0, 0, 0).u(0, 3).ue(0, 0, 0).u(0b100, 3)  # control of the loop filter
    return sps.nal(3, 7) + pps.nal(3, 8)


def _picture(kind: str, frame_num: int, order: int, *, reference: bool, idr: bool, rng: np.random.Generator) -> bytes:
    """kind: top, bottom, frame, or "skipped bottom"."""
    skipped = kind.startswith("skipped")
    bits = _Bits().ue(0, 5 if skipped else 7, 0).u(frame_num, 4)
    bits.u(0 if kind == "frame" else 1)
    if kind != "frame":
        bits.u(int(kind.endswith("bottom")))
    if idr:
        bits.ue(order // 2 % 16)
    bits.u(order % 256, 8)
    if skipped:
        bits.u(0, 2)
    if reference:
        bits.u(0, 2 if idr else 1)
    bits.ue(0, 1)  # slice_qp_delta, no loop filter
    count = MACROBLOCKS * (MACROBLOCKS if kind == "frame" else _FIELD_ROWS)
    if skipped:
        bits.ue(count)
    for _ in range(0 if skipped else count):
        bits.ue(25).align().samples(rng.integers(16, 236, 384))
    return bits.nal(2 if reference else 0, 5 if idr else 1)


# kind, frame_num, whether it is a reference
_GOP = [
    *[("top", 0, True), ("skipped bottom", 0, True)],
    *[("top", 1, False), ("bottom", 1, False)],
    ("frame", 1, True),
    *[("top", 2, False), ("bottom", 2, False)],
]


def paff_stream(gops: int) -> bytes:
    """An Annex B stream of `gops` * 4 frames of 64x64 pixels, in decoding order, which is also that of display."""
    rng = np.random.default_rng(0)
    stream = b""
    for _ in range(gops):
        stream += _parameter_sets()
        order = 0
        for number, (kind, frame_num, reference) in enumerate(_GOP):
            stream += _picture(kind, frame_num, order, reference=reference, idr=number == 0, rng=rng)
            order += 2 if kind == "frame" else 1
    return stream
