"""A process that uses a GPU in the sandbox of the vision worker, or in half of it, for `Partner`."""

from bench.gpu import machine
from bench.gpu.gpu_client import GpuClient
from unifiedserve import _core
from unifiedserve.config import EngineConfig
from unifiedserve.worker.confinement import leave_decoding

_SECONDS = 8.0
#: the half of the sandbox that is left out
WITHOUT = {"files": "restrict_calls", "calls": "restrict_files"}


class Confined(GpuClient):
    """A `GpuClient` that is confined before it uses CUDA, and decodes."""

    def confine(self, by: str) -> None:
        """Give up what the vision worker gives up: by the rules for "files", for "calls", or "both"; or "nothing"."""
        if by in WITHOUT:
            setattr(_core, WITHOUT[by], lambda *_: None)
        if by != "nothing":
            leave_decoding(EngineConfig(), "cuda")

    def decode_video(self) -> int:
        """Decode two frames of a clip on NVDEC; return how many segments were left to cores."""
        from flashcodec import FlashCodec, RGBLayout, analyse_bitstream

        stream = analyse_bitstream(machine.ROOT / "unifiedserve/samples/telescope.mp4")
        with FlashCodec(device="cuda:0") as codec:
            codec.add_decoding_request(stream, [0, stream.num_frames - 1], RGBLayout(224, 224), decode_on="gpu")
            while True:
                output = codec.get_decoding_output(_SECONDS)
                if output is None:
                    raise RuntimeError(f"no frame within {_SECONDS:g} s")
                if output.error:
                    raise RuntimeError(output.error)
                if output.done:
                    return codec.fallbacks

    def decode_image(self) -> bool:
        """Decode a JPEG on the GPU's hardware; return whether the hardware took it."""
        from flashcodec.image import GpuImages

        from flashcodec import RGBLayout

        image = machine.ROOT / "unifiedserve/samples/shapes.jpg"
        return GpuImages(0).image_in_layout(image, RGBLayout(224, 224)) is not None
