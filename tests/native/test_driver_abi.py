"""What is called of NVIDIA's libraries without their headers is as these say, where there are any."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = re.compile(r"(Function<[^;{]*>) \w+{\s*library_?,\s*\"(\w+)\"}")
NVJPEG = "nvidia/**/nvjpeg.h"  # where pip puts it, beside the library
NVCUVID = Path("/usr/include/ffnvcodec/dynlink_cuviddec.h")
# Ours, theirs, and the fields that are not where they are by their neighbours' sizes alone: theirs by ours.
STRUCTURES: dict[tuple[str, str], dict[str, str]] = {
    ("CuvidCaps", "CUVIDDECODECAPS"): {
        "codec": "eCodecType",
        "chroma": "eChromaFormat",
        "bit_depth_minus_8": "nBitDepthMinus8",
        "supported": "bIsSupported",
        "engines": "nNumNVDECs",
        "output_formats": "nOutputFormatMask",
        "max_width": "nMaxWidth",
        "max_height": "nMaxHeight",
        "max_macroblocks": "nMaxMBCount",
        "min_width": "nMinWidth",
        "min_height": "nMinHeight",
    },
    ("CuvidFormat", "CUVIDEOFORMAT"): {
        "codec": "codec",
        "luma_bits_minus_8": "bit_depth_luma_minus8",
        "chroma_bits_minus_8": "bit_depth_chroma_minus8",
        "least_surfaces": "min_num_decode_surfaces",
        "coded_width": "coded_width",
        "coded_height": "coded_height",
        "display": "display_area",
        "chroma": "chroma_format",
        "signal": "video_signal_description",
        "matrix": "video_signal_description.matrix_coefficients",
    },
    ("CuvidCreateInfo", "CUVIDDECODECREATEINFO"): {
        "width": "ulWidth",
        "height": "ulHeight",
        "surfaces": "ulNumDecodeSurfaces",
        "codec": "CodecType",
        "chroma": "ChromaFormat",
        "flags": "ulCreationFlags",
        "bit_depth_minus_8": "bitDepthMinus8",
        "max_width": "ulMaxWidth",
        "max_height": "ulMaxHeight",
        "display": "display_area",
        "output_format": "OutputFormat",
        "deinterlacing": "DeinterlaceMode",
        "target_width": "ulTargetWidth",
        "target_height": "ulTargetHeight",
        "mapped_surfaces": "ulNumOutputSurfaces",
        "lock": "vidLock",
        "target": "target_rect",
    },
    ("CuvidReconfigureInfo", "CUVIDRECONFIGUREDECODERINFO"): {
        "width": "ulWidth",
        "height": "ulHeight",
        "target_width": "ulTargetWidth",
        "target_height": "ulTargetHeight",
        "surfaces": "ulNumDecodeSurfaces",
        "display": "display_area",
        "target": "target_rect",
    },
    ("CuvidShown", "CUVIDPARSERDISPINFO"): {
        "surface": "picture_index",
        "progressive": "progressive_frame",
        "top_field_first": "top_field_first",
        "repeat_first_field": "repeat_first_field",
        "timestamp": "timestamp",
    },
    ("CuvidPacket", "CUVIDSOURCEDATAPACKET"): {
        "flags": "flags",
        "bytes": "payload_size",
        "data": "payload",
        "timestamp": "timestamp",
    },
    ("CuvidParserInfo", "CUVIDPARSERPARAMS"): {
        "codec": "CodecType",
        "surfaces": "ulMaxNumDecodeSurfaces",
        "error_threshold": "ulErrorThreshold",
        "display_delay": "ulMaxDisplayDelay",
        "user": "pUserData",
        "on_sequence": "pfnSequenceCallback",
        "on_decode": "pfnDecodePicture",
        "on_display": "pfnDisplayPicture",
        "extended": "pExtVideoInfo",
    },
    ("CuvidMapping", "CUVIDPROCPARAMS"): {
        "progressive": "progressive_frame",
        "top_field_first": "top_field_first",
        "unpaired_field": "unpaired_field",
        "stream": "output_stream",
    },
    ("CuvidStatus", "CUVIDGETDECODESTATUS"): {"status": "decodeStatus"},
}
# The decoder is given what the parser gave, of which we know the beginning.
PICTURE = {
    "width_in_macroblocks": "PicWidthInMbs",
    "height_in_macroblocks": "FrameHeightInMbs",
    "surface": "CurrPicIdx",
    "is_field": "field_pic_flag",
    "is_reference": "ref_pic_flag",
    "h264.log2_frame_nums_minus_4": "CodecSpecific.h264.log2_max_frame_num_minus4",
    "h264.is_reference": "CodecSpecific.h264.ref_pic_flag",
    "h264.frame_num": "CodecSpecific.h264.frame_num",
    "h264.references": "CodecSpecific.h264.dpb",
    "hevc.references": "CodecSpecific.hevc.NumPocTotalCurr",
    "hevc.before": "CodecSpecific.hevc.NumPocStCurrBefore",
    "hevc.after": "CodecSpecific.hevc.NumPocStCurrAfter",
    "hevc.long_term": "CodecSpecific.hevc.NumPocLtCurr",
    "hevc.order": "CodecSpecific.hevc.CurrPicOrderCntVal",
    "hevc.surfaces": "CodecSpecific.hevc.RefPicIdx",
    "hevc.orders": "CodecSpecific.hevc.PicOrderCntVal",
    "hevc.in_before": "CodecSpecific.hevc.RefPicSetStCurrBefore",
    "hevc.in_after": "CodecSpecific.hevc.RefPicSetStCurrAfter",
    "hevc.in_long_term": "CodecSpecific.hevc.RefPicSetLtCurr",
}
CONSTANTS = {
    "kCuvidEndOfStream": "CUVID_PKT_ENDOFSTREAM",
    "kCuvidTimestamp": "CUVID_PKT_TIMESTAMP",
    "kCuvidEndOfPicture": "CUVID_PKT_ENDOFPICTURE",
    "kCuvidDedicatedUnits": "cudaVideoCreate_PreferCUVID",
    "kCuvidError": "cuvidDecodeStatus_Error",
    "kCuvidH264": "cudaVideoCodec_H264",
    "kCuvidHevc": "cudaVideoCodec_HEVC",
}


def check(folder: Path, lines: list[str], *include: Path) -> None:
    """Compile lines of C++."""
    source = folder / "abi.cpp"
    source.write_text("\n".join(lines))
    folders = [argument for path in include for argument in ("-I", str(path))]
    command = [fake_cuda.cxx(), "-std=c++20", "-fsyntax-only", *folders, str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def cuda_header() -> Path:
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).parents[1], "/usr/local/cuda", "/usr"]
    for root in filter(None, roots):
        header = Path(root) / "include" / "cuda.h"
        if header.is_file():
            return header
    pytest.skip("no cuda.h")


def test_the_driver_s_functions_are_as_its_header_says(tmp_path: Path) -> None:
    """Every parameter has the size that cuda.h gives it, under the name that it exports."""
    headers = [ROOT / "native/cuda/driver.h", ROOT / "flashcodec/csrc/engines/nvdec/gpu.h"]
    functions = [found for header in headers for found in FUNCTION.findall(header.read_text())]
    assert len(functions) > 25
    lines = [
        "#include <cuda.h>",
        '#include "engines/nvdec/gpu.h"',
        "using namespace native::cuda;",
        "using flashcodec::kNonBlocking, flashcodec::kNoTiming;",
        "template <typename... Ours, typename... Theirs>",
        "constexpr bool agree(const Function<Ours...>*, CUresult (*)(Theirs...)) {",
        "  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) return false;",
        "  else return ((sizeof(Ours) == sizeof(Theirs) && alignof(Ours) >= alignof(Theirs)) && ...);",
        "}",
        *(f"static_assert(agree(static_cast<const {type}*>(nullptr), &{name}));" for type, name in functions),
        "static_assert(sizeof(Uuid) == sizeof(CUuuid) && sizeof(IpcHandle) == sizeof(CUipcMemHandle));",
        "static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);",
        "static_assert(kIpcLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);",
        "static_assert(kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);",
        "static_assert(kNonBlocking == CU_STREAM_NON_BLOCKING && kNoTiming == CU_EVENT_DISABLE_TIMING);",
        "static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);",
        "static_assert(kComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);",
        "static_assert(kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);",
        "static_assert(kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);",
    ]
    check(tmp_path, lines, cuda_header().parent, ROOT / "flashcodec/csrc", ROOT)


def test_structures_and_functions_of_the_video_library_are_as_its_headers_say(tmp_path: Path) -> None:
    if not NVCUVID.exists():
        pytest.skip("no headers of ffnvcodec")
    library = (ROOT / "flashcodec/csrc/engines/nvdec/cuvid_library.h").read_text()
    functions = FUNCTION.findall(library)
    assert len(functions) == 11
    fields = [(ours, theirs, *pair) for (ours, theirs), known in STRUCTURES.items() for pair in known.items()]
    fields += [("CuvidPicture", "CUVIDPICPARAMS", *pair) for pair in PICTURE.items()]
    lines = [
        "#include <cstddef>",
        "#include <ffnvcodec/dynlink_cuda.h>",
        "#include <ffnvcodec/dynlink_cuviddec.h>",
        "#include <ffnvcodec/dynlink_nvcuvid.h>",
        '#include "engines/nvdec/cuvid_library.h"',
        "using namespace flashcodec;",
        "using native::cuda::Function;",
        "template <typename... Ours, typename... Theirs>",
        "constexpr bool agree(const Function<Ours...>*, CUresult (*)(Theirs...)) {",
        "  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) return false;",
        "  else return ((sizeof(Ours) == sizeof(Theirs)) && ...);",
        "}",
        *(f"static_assert(sizeof({ours}) == sizeof({theirs}));" for ours, theirs in STRUCTURES),
        *(f"static_assert(offsetof({ours}, {a}) == offsetof({theirs}, {b}));" for ours, theirs, a, b in fields),
        *(f"static_assert({ours} == {theirs});" for ours, theirs in CONSTANTS.items()),
        *(
            f"static_assert(agree(static_cast<const {type}*>(nullptr), static_cast<t{theirs}*>(nullptr)));"
            for type, theirs in ((type, name.removesuffix("64")) for type, name in functions)
        ),
    ]
    check(tmp_path, lines, ROOT / "flashcodec/csrc", ROOT)


def nvjpeg_header() -> Path:
    beside_cuda = cuda_header().with_name("nvjpeg.h")
    installed = [path for root in map(Path, sys.path) if root.name == "site-packages" for path in root.glob(NVJPEG)]
    for header in (beside_cuda, *installed):
        if header.is_file():
            return header
    pytest.skip("no nvjpeg.h")


def test_the_jpeg_library_s_functions_are_as_its_header_says(tmp_path: Path) -> None:
    functions = FUNCTION.findall((ROOT / "flashcodec/csrc/engines/nvjpeg/nvjpeg_library.h").read_text())
    assert len(functions) == 11
    lines = [
        "#include <cstddef>",
        "#include <nvjpeg.h>",
        '#include "engines/nvjpeg/nvjpeg_library.h"',
        "using namespace flashcodec;",
        "using native::cuda::Function;",
        "template <typename... Ours, typename... Theirs>",
        "constexpr bool agree(const Function<Ours...>*, nvjpegStatus_t (*)(Theirs...)) {",
        "  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) return false;",
        "  else return ((sizeof(Ours) == sizeof(Theirs)) && ...);",
        "}",
        "static_assert(sizeof(NvjpegImage) == sizeof(nvjpegImage_t));",
        "static_assert(offsetof(NvjpegImage, pitch) == offsetof(nvjpegImage_t, pitch));",
        "static_assert(kNvjpegHardware == NVJPEG_BACKEND_HARDWARE && kNvjpegPlanarRgb == NVJPEG_OUTPUT_RGB);",
        "static_assert(kNvjpegSmoothChroma == (NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION));",
        *(f"static_assert(agree(static_cast<const {type}*>(nullptr), &{name}));" for type, name in functions),
    ]
    check(tmp_path, lines, nvjpeg_header().parent, cuda_header().parent, ROOT / "flashcodec/csrc", ROOT)
