"""The contestants. Each module decodes in its library's own way behind one function:

    frames(path, indices, size, threads) -> uint8 [n, height, width, 3], RGB

`indices` are frame numbers in presentation order, in any order; `size` is (height, width) or None for the native one;
`threads` are the cores it may use. A module may have variants of that function, and `patches` (see
flashcodec_patches.py). Those that `flashcodec bench` runs, too, are in its folder, which this package continues: so a
contestant's process finds them without an import of FlashCodec.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_FLASHCODEC = find_spec("flashcodec")
assert _FLASHCODEC is not None
assert _FLASHCODEC.origin is not None
__path__.append(str(Path(_FLASHCODEC.origin).parent / "cli" / "peers"))

FOLDER = Path(__file__).parents[3] / "build" / "peers"


@dataclass(frozen=True)
class Contestant:
    """A function of a module, and the distribution that it needs in a folder of its own, if any."""

    module: str
    function: str = "frames"
    package: str | None = None
    note: str = ""


CONTESTANTS = {
    "FlashCodec": Contestant("flashcodec", note="antialiased bicubic, its own"),
    "TorchCodec": Contestant("torchcodec", note="exact, one thread (its defaults); its Resize (swscale bilinear)"),
    "TorchCodec approximate": Contestant("torchcodec", "approximate", note="as above, seek_mode approximate"),
    "TorchCodec split": Contestant("torchcodec", "split", note="a decoder a core, each with a share of the indices"),
    "PyAV": Contestant("pyav", package="av==18.1.0", note="seeks, FFmpeg's own threads; swscale bilinear"),
    "PyAV split": Contestant("pyav", "split", "av==18.1.0", "a single-threaded decoder a core; swscale bilinear"),
    "decord": Contestant("decord", package="decord==0.6.0", note="num_threads = cores; its own bicubic"),
    "decord2": Contestant("decord", package="decord2==3.4.0", note="num_threads = cores; its own bicubic"),
    "OpenCV": Contestant("opencv", package="opencv-python-headless==5.0.0.93", note="grab all; cv2 INTER_AREA"),
    "deepcodec": Contestant("deepcodec", package="deepcodec==0.0.8", note="a process a core; swscale bilinear"),
    "video-reader-rs": Contestant("video_reader", package="video-reader-rs==0.4.5", note="swscale bilinear"),
}
PATCHES = {
    "FlashCodec": Contestant("flashcodec_patches", "patches", note="PatchLayout"),
    "TorchCodec": Contestant("torchcodec_patches", "patches", note="one thread + transformers' video processor"),
    "TorchCodec split": Contestant("torchcodec_patches", "split", note="a decoder a core + the processor"),
}
FLOOR = Contestant("floor", "floor", "av==18.1.0")
_TORCHCODEC = "torchcodec==0.17.0"
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
SPLITS = ("TorchCodec split", "PyAV split")  # the best peers; like their namesakes where files run side by side


def folder_of(package: str, root: Path = FOLDER) -> Path:
    """Return the folder in which a distribution such as `av==18.1.0` is installed, alone."""
    return root / package.split("==")[0]
