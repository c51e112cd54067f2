"""Choose which images and videos are taken, and how they are decoded."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError

VideoDecoderName = Literal["flashcodec", "torchcodec", "pynvvideocodec"]
ImageBackground = Literal["white", "black", "none"]
DecodeOn = Literal["fastest", "cpu", "gpu"]


class MediaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choose which images and videos are taken, and how they are decoded."""

    video_decoder: Annotated[
        VideoDecoderName,
        Meta(
            description="The library that decodes videos. torchcodec, or pynvvideocodec on a GPU, must be "
            "installed; choose one to compare, or if flashcodec fails on a file"
        ),
    ] = "flashcodec"
    decode_on: Annotated[
        DecodeOn,
        Meta(
            description="The hardware that decodes videos. cpu: the cores; gpu: the GPU's NVDEC units; "
            "fastest: for each video whichever is estimated to finish sooner"
        ),
    ] = "fastest"
    max_decode_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="The most seconds of one core that the frames of a video may take to decode, by an estimate "
            "that is the same for every --video-decoder and on a GPU; a video that takes longer is refused. An hour "
            "of 1920x1080 takes about 240. Lower it for strangers, raise it for films",
        ),
    ] = 600.0
    max_image_megapixels: Annotated[
        int, Meta(ge=1, description="The largest image before resizing, in millions of pixels")
    ] = 128
    image_background: Annotated[
        ImageBackground,
        Meta(
            description="The colour behind transparent pixels of images. none: the colours stored in these pixels, "
            "which no viewer shows"
        ),
    ] = "white"
    allowed_local_media_path: Annotated[
        str,
        Meta(description="The directory below which file:// URLs in requests may read. Empty: such URLs are refused"),
    ] = ""
    allow_private_media: Annotated[
        bool,
        Meta(
            description="Allow media URLs that lead to private or loopback addresses. Only for trusted clients: "
            "they could read internal services"
        ),
    ] = False
    allowed_media_domains: Annotated[
        tuple[str, ...], Meta(description="A host that media URLs may name. May be repeated. Default: any public host")
    ] = ()
    max_media_mib: Annotated[
        int, Meta(ge=1, description="The largest image or video that may be uploaded or fetched, in MiB")
    ] = 512
    media_timeout: Annotated[float, Meta(gt=0, description="Seconds in which a media URL must be fetched")] = 30.0

    @property
    def max_image_pixels(self) -> int:
        """Return the pixels of the largest image."""
        return self.max_image_megapixels * 1_000_000

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.decode_on != "fastest" and self.video_decoder != "flashcodec":
            raise ConfigError(
                f"--decode-on works with --video-decoder flashcodec only, not with {self.video_decoder}: leave one out"
            )
