"""Offer FlashCodec as a video loader of vLLM. It calls `register` by itself where both are installed.

vLLM tells loaders (which frames) from backends (who decodes them), and FlashCodec is both:

* loader: `VLLM_VIDEO_LOADER_BACKEND=flashcodec`, frames at even distances as of vLLM's "opencv" loader;
* backend, for models with a loader of their own such as Qwen-VL, which that variable does not reach:
  `--media-io-kwargs '{"video": {"backend": "flashcodec"}}'`.

Options of both, beside vLLM's own, are those of `VideoDecoder` in `OPTIONS`:
`--media-io-kwargs '{"video": {"backend": "flashcodec", "on_error": "nearest"}}'`.
"""

import sys
from types import ModuleType
from typing import Any

from vllm.multimodal import video_decoders
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, VideoBackend

from flashcodec.errors import DecodeError
from flashcodec.reading import Pixels
from flashcodec.video_decoder import VideoDecoder

BACKEND = "flashcodec"
OPTIONS: dict[str, Any] = {"num_threads": 0, "on_error": "raise", "snap": None, "fast": False}


def decode_flashcodec(
    loader: type[VideoBackend],
    data: bytes,
    target: video_decoders.VideoTargetMetadata,
    sampling: dict[str, Any],
    **options: Any,
) -> tuple[Pixels, video_decoders.VideoSourceMetadata, list[int], list[int]]:
    """Decode the frames that `loader` chooses of the video in `data`.

    Returns frames as uint8 [n, height, width, 3], what is known of the video, the frames wanted, and those there are.
    Raises ValueError, which vLLM's server answers with 400, if the video cannot be decoded or is over its limits.
    """
    try:
        with VideoDecoder(data, dimension_order="NHWC", **options) as decoder:
            found = decoder.metadata
            video_decoders.check_frame_pixel_limit(found.width, found.height)
            source = loader._prepare_source(
                video_decoders.VideoSourceMetadata(found.num_frames, found.average_fps or 0.0, found.duration_seconds)
            )
            wanted = loader.compute_frames_index_to_sample(source=source, target=target, **sampling)
            batch = decoder.get_frames_at(wanted)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    assert batch.indices is not None
    return batch.data, source, wanted, batch.indices.tolist()


class FlashCodecVideoBackend(VideoBackend):  # type: ignore[misc]
    """Load frames at even distances, decoded by FlashCodec."""

    @classmethod
    def load_bytes(
        cls,
        data: bytes,
        num_frames: int = -1,
        fps: float = -1,
        max_duration: int = 300,
        frame_recovery: bool = False,
        *,
        backend: str = BACKEND,
        **kwargs: Any,
    ) -> tuple[Pixels, dict[str, Any]]:
        """Load as vLLM's `VideoBackend` does; `frame_recovery` is on_error="nearest".

        Raises ValueError as `decode_flashcodec`, and for another `backend`.
        """
        if backend != BACKEND:
            raise ValueError(f"the {BACKEND} loader has no backend {backend!r}")
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        if frame_recovery:
            options["on_error"] = "nearest"
        target = video_decoders.VideoTargetMetadata(num_frames, fps, max_duration)
        frames, source, _, valid = decode_flashcodec(cls, data, target, kwargs, **options)
        return frames, cls.create_hf_metadata(source=source, video_backend=BACKEND, valid_frame_indices=valid)


def register() -> None:
    """Make the loader and the backend known to vLLM. It may be called again."""
    VIDEO_LOADER_REGISTRY.register(BACKEND)(FlashCodecVideoBackend)
    # vLLM has no registry of backends: it looks for their options here, and for a submodule of their name.
    video_decoders._BACKEND_OPTION_DEFAULTS[BACKEND] = OPTIONS
    module = ModuleType(f"{video_decoders.__name__}.{BACKEND}", "Added by flashcodec.plugins.vllm.")
    module.decode_flashcodec = decode_flashcodec  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
