"""The contestants. Each module decodes in its library's own way behind one function:

    frames(path, indices, size, threads) -> uint8 [n, height, width, 3], RGB

`indices` are frame numbers in presentation order, in any order; `size` is (height, width) or None for the native one;
`threads` are the cores it may use. A module may have variants of that function, `patches` (see flashcodec_patches.py)
and a function for the task "analysis", which returns a value for each frame of the file. The modules that
`flashcodec bench` runs, too, are in its folder, which this package continues: so a contestant's process finds them
without an import of FlashCodec, which its environment may lack.
"""

from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).parents[3]
__path__.append(str(_REPOSITORY / "flashcodec/python/flashcodec/cli/peers"))

FOLDER = _REPOSITORY / "build" / "peers"


@dataclass(frozen=True)
class Contestant:
    """A function of a module, and what it runs in.

    `package` is a distribution in a folder or an environment of its own; `python` is an interpreter.
    """

    module: str
    function: str = "frames"
    package: str | None = None
    note: str = ""
    python: str | None = None


@dataclass(frozen=True)
class Environment:
    """What else a distribution's virtual environment holds, and names of interpreters, the best first."""

    packages: tuple[str, ...]
    pythons: tuple[str, ...] = ()


_TORCHCODEC = "torchcodec==0.17.0"
_PYAV = "av==19.0.2; python_version >= '3.12'"
# The other distributions lie in folders and use the libraries of this program.
ENVIRONMENTS = {
    _TORCHCODEC: Environment(("torch==2.14.1", "torchvision==0.29.1", "transformers==5.24.0")),
    _PYAV: Environment(("av==18.1.0; python_version < '3.12'", "numpy"), ("python3.14", "python3.13", "python3.12")),
}
CONTESTANTS = {
    "FlashCodec": Contestant("flashcodec", note="antialiased bicubic, its own"),
    "TorchCodec": Contestant(
        "torchcodec", package=_TORCHCODEC, note="exact, one thread (its defaults); its Resize (swscale bilinear)"
    ),
    "TorchCodec approximate": Contestant("torchcodec", "approximate", _TORCHCODEC, "as above, seek_mode approximate"),
    "TorchCodec threads": Contestant("torchcodec", "threaded", _TORCHCODEC, "exact, num_ffmpeg_threads = cores"),
    "TorchCodec split": Contestant(
        "torchcodec", "split", _TORCHCODEC, "a decoder a core, each with a share of the indices; exact"
    ),
    "TorchCodec split approximate": Contestant(
        "torchcodec", "split_approximate", _TORCHCODEC, "as above, seek_mode approximate"
    ),
    "PyAV": Contestant("pyav", package=_PYAV, note="seeks, FFmpeg's own threads; swscale bilinear"),
    "PyAV split": Contestant("pyav", "split", _PYAV, "a single-threaded decoder a core; swscale bilinear"),
    "decord": Contestant("decord", package="decord==0.6.0", note="num_threads = cores; its own bicubic"),
    "decord2": Contestant("decord", package="decord2==3.4.0", note="num_threads = cores; its own bicubic"),
    "OpenCV": Contestant("opencv", package="opencv-python-headless==5.0.0.93", note="grab all; cv2 INTER_AREA"),
    "deepcodec": Contestant("deepcodec", package="deepcodec==0.0.8", note="a process a core; swscale bilinear"),
    "video-reader-rs": Contestant("video_reader", package="video-reader-rs==0.4.5", note="swscale bilinear"),
}
PATCHES = {
    "FlashCodec": Contestant("flashcodec_patches", "patches", note="PatchLayout"),
    "TorchCodec": Contestant(
        "torchcodec_patches", "patches", _TORCHCODEC, "one thread + transformers' video processor"
    ),
    "TorchCodec split": Contestant("torchcodec_patches", "split", _TORCHCODEC, "a decoder a core + the processor"),
}
ANALYSES = {
    "FlashCodec": Contestant("flashcodec", "analysed", note="analyse_bitstream"),
    "TorchCodec": Contestant("torchcodec", "opened", _TORCHCODEC, "opened with the scan of exact seeking"),
    "PyAV": Contestant("pyav", "opened", _PYAV, "times and key flags of all packets"),
}
FLOOR = Contestant("floor", "floor", _PYAV)
# Those whose frames are in a GPU's memory.
ON_GPU = {
    "FlashCodec": Contestant("flashcodec_gpu", note="NVDEC, cores or both, as it estimates"),
    "FlashCodec on NVDEC": Contestant("flashcodec_gpu", "nvdec", note="whatever the estimates say"),
    "FlashCodec on one NVDEC engine": Contestant("flashcodec_gpu", "one_engine", note="the plan's packets only"),
    "FlashCodec on cores": Contestant("flashcodec_gpu", "cores", note="its frames are copied to the GPU"),
    "TorchCodec": Contestant("torchcodec_gpu", package=_TORCHCODEC, note="its CUDA backend 'beta'; torch's bilinear"),
    "TorchCodec split": Contestant("torchcodec_gpu", "split", _TORCHCODEC, "7 decoders, a share of the indices each"),
    "PyNvVideoCodec": Contestant("pynvvideocodec", package="PyNvVideoCodec==2.2.4", note="SimpleDecoder, by index"),
}
PATCHES_ON_GPU = {
    "FlashCodec": Contestant("flashcodec_gpu", "patches", note="PatchLayout"),
    "TorchCodec": Contestant("torchcodec_gpu", "patches", _TORCHCODEC, "transformers' video processor, on the GPU"),
}
FLOOR_ON_GPU = Contestant("flashcodec_gpu", "floor")
SPLITS = ("TorchCodec split", "TorchCodec split approximate", "PyAV split")  # the best peers
WITH_CORES = (*SPLITS, "TorchCodec threads")  # like their namesakes where files run side by side


def folder_of(package: str, root: Path = FOLDER) -> Path:
    """Return the folder of a distribution such as `decord==0.6.0`: its modules', or its virtual environment's."""
    return root / package.split("==")[0]
