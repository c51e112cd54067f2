"""Know transformers' defaults for fields that a checkpoint's processor files leave out.

Only those are here that change anything. The defaults of videos cannot be asked of transformers itself, because these
processors cannot be imported without torchvision.
"""

from collections.abc import Mapping
from typing import Any

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_CLIP = {"image_mean": CLIP_MEAN, "image_std": CLIP_STD}
_HALF = {"image_mean": (0.5,) * 3, "image_std": (0.5,) * 3}
_PICTURES = {"do_resize": True, "resample": 3, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
_CROP = {"do_center_crop": None, "crop_size": None}
_SAMPLING = {"fps": None, "num_frames": None}
_FRAMES = _PICTURES | _CROP | _SAMPLING
_PATCHES = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
_LIMITS = {"min_pixels": None, "max_pixels": None}
_MANY = {"min_frames": 4, "max_frames": 768, "cap_pixels_per_frame": None}
_CROPPED = {"do_center_crop": True, "crop_size": {"height": 224, "width": 224}}

#: Qwen2VLImageProcessor
QWEN_IMAGES: Mapping[str, Any] = (
    _PICTURES
    | _CROP
    | _CLIP
    | _PATCHES
    | _LIMITS
    | {"size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}}
)
#: Qwen2VLVideoProcessor
QWEN2_VIDEOS: Mapping[str, Any] = (
    _FRAMES
    | _CLIP
    | _PATCHES
    | _LIMITS
    | _MANY
    | {"video_processor_type": "Qwen2VLVideoProcessor"}
    | {"size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768}, "max_video_tokens": 128000}
)
#: Qwen3VLVideoProcessor
QWEN3_VIDEOS: Mapping[str, Any] = (
    _FRAMES
    | _HALF
    | _PATCHES
    | _MANY
    | {"size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768}, "max_video_tokens": 768}
    | {"patch_size": 16, "fps": 2, "video_processor_type": "Qwen3VLVideoProcessor"}
)
#: by model type, for the families whose pictures have a size of their own
VIDEO_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "internvl": _FRAMES
    | _CLIP
    | {"size": {"height": 384, "width": 384}, "initial_shift": True}
    | {"video_processor_type": "InternVLVideoProcessor"},
    "llava_next_video": _FRAMES
    | _CLIP
    | _CROPPED
    | {"size": {"shortest_edge": 224}}
    | {"video_processor_type": "LlavaNextVideoVideoProcessor"},
    "llava_onevision": _FRAMES
    | _CLIP
    | {"size": {"height": 384, "width": 384}}
    | {"video_processor_type": "LlavaOnevisionVideoProcessor"},
    "minicpmv4_6": _FRAMES
    | _HALF
    | {"max_slice_nums": 9, "scale_resolution": 448, "patch_size": 14, "slice_mode": True, "downsample_mode": "16x"}
    | {"max_num_frames": 128, "stack_frames": 1, "size": None, "video_processor_type": "MiniCPMV4_6VideoProcessor"},
    "smolvlm": _FRAMES
    | _HALF
    | {"resample": 1, "size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}, "video_sampling": None}
    | {"video_processor_type": "SmolVLMVideoProcessor"},
}
