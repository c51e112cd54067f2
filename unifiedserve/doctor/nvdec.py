"""Inspect NVDEC: how many decoder engines there are and what they decode (cuvidGetDecoderCaps)."""

import ctypes
from typing import Any

from unifiedserve.doctor.check import Check, Status
from unifiedserve.doctor.cuda_driver import Driver
from unifiedserve.doctor.isolation import ProbeError, call
from unifiedserve.doctor.libraries import CONTAINER

LIBRARY = "libnvcuvid.so.1"
CODECS = {"h264": 4, "hevc": 8, "vp9": 10, "av1": 11}  # cudaVideoCodec
CHROMAS = {"4:2:0": 1, "4:4:4": 3}  # cudaVideoChromaFormat
BIT_DEPTHS = (8, 10)


class DecodeCaps(ctypes.Structure):
    """Hold CUVIDDECODECAPS, field by field under its C names (ffnvcodec's dynlink_cuviddec.h)."""

    _fields_ = (
        ("eCodecType", ctypes.c_int),
        ("eChromaFormat", ctypes.c_int),
        ("nBitDepthMinus8", ctypes.c_uint),
        ("reserved1", ctypes.c_uint * 3),
        ("bIsSupported", ctypes.c_ubyte),
        ("nNumNVDECs", ctypes.c_ubyte),
        ("nOutputFormatMask", ctypes.c_ushort),
        ("nMaxWidth", ctypes.c_uint),
        ("nMaxHeight", ctypes.c_uint),
        ("nMaxMBCount", ctypes.c_uint),
        ("nMinWidth", ctypes.c_ushort),
        ("nMinHeight", ctypes.c_ushort),
        ("bIsHistogramSupported", ctypes.c_ubyte),
        ("nCounterBitDepth", ctypes.c_ubyte),
        ("nMaxHistogramBins", ctypes.c_ushort),
        ("reserved3", ctypes.c_uint * 10),
    )


def probe() -> list[Check]:
    try:
        gpus = call("nvdec:decoder_caps")
    except ProbeError as error:
        return [Check("NVDEC", f"not usable ({error})", Status.MISSING, CONTAINER)]
    return [check for number, caps in enumerate(gpus) for check in describe(number, caps)]


def describe(gpu: int, caps: list[dict[str, Any]]) -> list[Check]:
    engines = max((cap["engines"] for cap in caps), default=0)
    status = Status.OK if engines else Status.MISSING
    details = {"gpu": gpu, "engines": engines, "caps": caps}
    checks = [Check(f"NVDEC on GPU {gpu}", f"{engines} engines", status, details=details)]
    for codec in CODECS:
        formats = [cap for cap in caps if cap["codec"] == codec and cap["supported"]]
        value = ", ".join(map(_format, formats)) or "not in hardware"
        checks.append(Check(f"NVDEC {codec}", value, details={"gpu": gpu, "formats": formats}))
    return checks


def decoder_caps() -> list[list[dict[str, Any]]]:
    """Ask each GPU for its capabilities. Every codec × chroma × bit depth in question is asked for."""
    driver = Driver()
    library = ctypes.CDLL(LIBRARY)
    gpus = []
    for device in range(driver.device_count()):
        with driver.context(device):
            gpus.append(
                [_ask(library, codec, chroma, depth) for codec in CODECS for chroma in CHROMAS for depth in BIT_DEPTHS]
            )
    return gpus


def _ask(library: ctypes.CDLL, codec: str, chroma: str, depth: int) -> dict[str, Any]:
    caps = DecodeCaps(eCodecType=CODECS[codec], eChromaFormat=CHROMAS[chroma], nBitDepthMinus8=depth - 8)
    error = library.cuvidGetDecoderCaps(ctypes.byref(caps))
    supported = error == 0 and bool(caps.bIsSupported)
    return {
        "codec": codec,
        "chroma": chroma,
        "bit_depth": depth,
        "supported": supported,
        "error": error,
        "engines": caps.nNumNVDECs if supported else 0,
        "max_width": caps.nMaxWidth,
        "max_height": caps.nMaxHeight,
        "max_macroblocks": caps.nMaxMBCount,
        "output_formats": caps.nOutputFormatMask,
    }


def _format(cap: dict[str, Any]) -> str:
    return f"{cap['bit_depth']}-bit {cap['chroma']} to {cap['max_width']}×{cap['max_height']}"
