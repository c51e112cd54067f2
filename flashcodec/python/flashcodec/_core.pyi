"""The C++ core, csrc/bindings.cpp."""

from enum import Enum

import numpy as np
import numpy.typing as npt

from flashcodec.errors import DecodeError

class Source:
    @staticmethod
    def path(path: str) -> Source: ...
    @staticmethod
    def buffer(bytes_like: object, name: str) -> Source: ...
    @staticmethod
    def file_like(file: object, name: str) -> Source: ...
    @property
    def name(self) -> str: ...

class Limits:
    max_pixels: int
    max_packets: int
    max_source_bytes: int
    max_analysis_seconds: float
    max_decode_seconds: float
    def __init__(self) -> None: ...

class Metadata:
    codec: str
    pixel_format: str | None
    width: int
    height: int
    rotation: float | None
    duration_from_header: float | None
    begin_from_header: float | None
    bit_rate: float | None
    average_fps_from_header: float | None
    num_frames_from_header: int | None
    pixel_aspect_ratio: tuple[int, int] | None
    color_primaries: str | None
    color_space: str | None
    color_transfer: str | None

class Bitstream:
    def __init__(self, source: Source, stream_index: int, limits: Limits) -> None: ...
    @property
    def source_name(self) -> str: ...
    @property
    def stream_index(self) -> int: ...
    @property
    def scanned(self) -> bool: ...
    @property
    def num_frames(self) -> int: ...
    @property
    def num_packets(self) -> int: ...
    @property
    def metadata(self) -> Metadata: ...
    def pts_seconds(self) -> npt.NDArray[np.float64]: ...
    def durations_seconds(self) -> npt.NDArray[np.float64]: ...
    def end_seconds(self) -> float: ...
    def key_frames(self) -> npt.NDArray[np.int64]: ...
    def gops(self) -> list[tuple[int, int, int, int]]: ...
    def plan(
        self, frames: npt.NDArray[np.int64], group_frames: int, engines: int
    ) -> tuple[tuple[int, int, tuple[tuple[int, int], ...], int, int, int, bool], ...]: ...

class LayoutKind(Enum):
    PATCHES = 0
    CHW = 1
    HWC = 2
    TILES = 3
    RAW = 4

class Interpolation(Enum):
    BICUBIC = 0
    BILINEAR = 1
    AREA = 2

class Thumbnail(Enum):
    NONE = 0
    FIRST = 1
    LAST = 2

class Fit:
    def __init__(
        self,
        height: int = 0,
        width: int = 0,
        top: int = 0,
        left: int = 0,
        color: tuple[int, int, int] = (0, 0, 0),
        square: bool = False,
    ) -> None: ...

class Layout:
    def __init__(
        self,
        kind: LayoutKind,
        height: int,
        width: int,
        patch_size: int = 1,
        temporal_patch_size: int = 1,
        merge_size: int = 1,
        interpolation: Interpolation = Interpolation.BICUBIC,
        fit: Fit = ...,
        tile_size: int = 1,
        thumbnail: Thumbnail = Thumbnail.NONE,
    ) -> None: ...

def kernels() -> list[str]: ...
def lay_out(rgb: npt.NDArray[np.uint8], layout: Layout, kernels: str | None = None) -> npt.NDArray[np.uint8]: ...

class Conversion:
    def __init__(
        self,
        planes: npt.NDArray[np.uint8],
        pixel_format: str,
        height: int,
        width: int,
        color_space: int,
        full_range: bool,
        kernels: str | None = None,
    ) -> None: ...
    def lay_out(self, layout: Layout, quarter_turns: int = 0, mirrored: bool = False) -> npt.NDArray[np.uint8]: ...

class Scheduler:
    def __init__(self, engines: int, memory_limit: int) -> None: ...
    @property
    def engines(self) -> int: ...
    def close(self) -> None: ...

class Output:
    @property
    def request(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def engine(self) -> int: ...
    @property
    def began(self) -> float: ...
    @property
    def ended(self) -> float: ...
    @property
    def damaged(self) -> bool: ...
    @property
    def done(self) -> bool: ...
    @property
    def error(self) -> DecodeError | None: ...
    def take_data(self) -> npt.NDArray[np.uint8]: ...

class Session:
    def __init__(self, scheduler: Scheduler, output_limit: int) -> None: ...
    def add(
        self,
        bitstream: Bitstream,
        frames: npt.NDArray[np.int64],
        layout: Layout,
        out: npt.NDArray[np.uint8] | None = None,
        priority: int = 0,
        fast: bool = False,
        report: bool = False,
    ) -> int: ...
    def take(self, timeout: float | None) -> Output | None: ...
    def cancel(self, request: int) -> None: ...
    def cancel_all(self) -> None: ...

def ffmpeg_versions() -> dict[str, str]: ...
def decoder_name(codec: str) -> str | None: ...
def mute_ffmpeg() -> None: ...
