"""What is called of NVIDIA's libraries without their headers is as these say, where there are any."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import fake_cuda
import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTION = re.compile(r"(Function<[^;{]*>) \w+{library_?, \"(\w+)\"}")
NVCUVID = Path("/usr/include/ffnvcodec/dynlink_cuviddec.h")
FIELDS = {
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
        '#include "native/cuda/driver.h"',
        "using namespace native::cuda;",
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
        "static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);",
        "static_assert(kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);",
        "static_assert(kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);",
    ]
    check(tmp_path, lines, cuda_header().parent, ROOT)


def test_the_answer_about_decoders_is_as_its_header_says(tmp_path: Path) -> None:
    if not NVCUVID.exists():
        pytest.skip("no headers of ffnvcodec")
    lines = [
        "#include <cstddef>",
        "#include <ffnvcodec/dynlink_cuda.h>",
        "#include <ffnvcodec/dynlink_cuviddec.h>",
        '#include "engines/nvdec/cuvid_caps.h"',
        "using flashcodec::CuvidCaps;",
        "static_assert(sizeof(CuvidCaps) == sizeof(CUVIDDECODECAPS));",
        *(
            f"static_assert(offsetof(CuvidCaps, {ours}) == offsetof(CUVIDDECODECAPS, {theirs}));"
            for ours, theirs in FIELDS.items()
        ),
    ]
    check(tmp_path, lines, ROOT / "flashcodec/csrc")
