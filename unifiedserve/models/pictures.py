"""Families whose encoder reads square pictures of one size: CLIP, SigLIP, InternViT.

A row of the patch buffer is a piece of a picture [3, side, side], of three times the side's bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from flashcodec.geometry import shortest_edge_size
from torch import Tensor

from flashcodec import RGBLayout
from unifiedserve.device.base import Device
from unifiedserve.device.cpu import CPU
from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.messages.layouts import Filter
from unifiedserve.messages.media import MediaKind, MediaOptions, MediaPlan, PromptError
from unifiedserve.models.base import LanguageAdapter, Processor
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.normalisation import normalisation

WITH_CLASS_TOKEN = {"clip_vision_model"}
FILTERS: dict[int, Filter] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # keys are Pillow's numbers

Units = Sequence[tuple[MediaPlan, int]]


class PictureProcessor(Processor, ABC):
    """A processor by the checkpoint's rules for images and videos; `side` of the pictures is for the family to tell.

    Raises ConfigError if the rules are missing or malformed.
    """

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.image_rules = image_rules(model_dir)
        self.video_rules = video_rules(model_dir)
        self.side = self.picture_side()
        self.patch_row_bytes = 3 * self.side
        self.visual_dim = config.get_text_config().hidden_size

    @abstractmethod
    def picture_side(self) -> int:
        """Return the pictures' side in pixels, from `image_rules`."""

    def check_options(self, kind: MediaKind, options: MediaOptions) -> None:
        """Refuse limits of pixels, for the model's own rules fix the size of pictures."""
        super().check_options(kind, options)
        for name in ("min_pixels", "max_pixels"):
            if getattr(options, name) is not None:
                raise PromptError(f"{name} has no effect: the model's own rules fix the size of pictures", name)

    def picture_token(self, kind: MediaKind, text: str) -> None:
        """Take media of this kind: `text` is both the placeholder and what stands for a visual token."""
        self.placeholders = {**self.placeholders, kind: text}
        self.visual_ids = {**self.visual_ids, kind: self.tokenizer.convert_tokens_to_ids(text)}


class PictureAdapter(LanguageAdapter):
    """An adapter that normalises pictures as transformers does, and leaves the rest to `features`."""

    def __init__(
        self, config: Any, weights: Mapping[str, Tensor], dtype: torch.dtype, model_dir: Path, device: Device = CPU
    ) -> None:
        super().__init__(config, weights, dtype, model_dir, device)
        image, video = image_rules(model_dir), video_rules(model_dir)
        self._normalisation: dict[MediaKind, tuple[Tensor, Tensor]] = {
            "image": self._channels(image.to_dict()),
            "video": self._channels({**image.to_dict(), **video}),
        }

    @torch.inference_mode()
    def encode(self, patches: Tensor, units: Units) -> Tensor:
        pictures, row = [], 0
        for plan, count in units:
            rows = patches[row : row + count * plan.patches_per_unit]
            row += len(rows)
            mean, deviation = self._normalisation[plan.kind]
            side = patches.shape[1] // 3
            pictures.append(rows.view(-1, 3, side, side).float().sub_(mean).div_(deviation))
        return self.features(torch.cat(pictures).to(self.dtype), units)

    def _channels(self, rules: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        mean, deviation = channel_normalisation(rules)
        return self.device.upload(mean), self.device.upload(deviation)

    def features(self, pixels: Tensor, units: Units) -> Tensor:
        """Return visual tokens [M, hidden] of the `units`' normalised pictures [n, 3, side, side]."""
        features: Sequence[Tensor] = self.model.model.get_image_features(pixels).pooler_output
        return torch.cat(list(features))


def image_rules(model_dir: Path) -> Any:
    """Load transformers' image processor, for its rules alone."""
    try:
        return load_transformers().AutoImageProcessor.from_pretrained(model_dir)
    except Exception as error:
        raise ConfigError(f"{model_dir}: the rules for images cannot be read: {error}") from error


def video_rules(model_dir: Path) -> dict[str, Any]:
    """Read what the checkpoint says of videos; empty if nothing."""
    rules: dict[str, Any] = read_json(model_dir / "processor_config.json", default={}).get("video_processor") or {}
    for name in ("video_preprocessor_config.json", "preprocessor_config.json"):  # the order in which transformers looks
        rules = rules or read_json(model_dir / name, default={})
    return {name: value for name, value in rules.items() if value is not None}


def channel_normalisation(rules: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return float32 [3, 1, 1] mean and deviation of uint8 values."""
    rescale = rules["rescale_factor"] if rules.get("do_rescale", True) else None
    moments = (rules["image_mean"], rules["image_std"]) if rules.get("do_normalize", True) else (None, None)
    mean, deviation = normalisation(rescale, *moments)
    return mean.view(3, 1, 1), deviation.view(3, 1, 1)


def whole_picture(
    rules: Mapping[str, Any], height: int, width: int, square: tuple[int, int, int] | None = None
) -> RGBLayout:
    """Return the layout of pictures of `height` × `width`, resized and cropped by `rules`.

    If there is a colour for a `square`, they are first padded with it to one.

    Raises ConfigError if the rules have no size, or one that is smaller than the part they crop.
    """
    size, crop = rules.get("size"), rules.get("crop_size")
    sides = (max(height, width),) * 2 if square else (height, width)
    if isinstance(size, Mapping) and size.get("shortest_edge"):
        rows, columns = shortest_edge_size(*sides, size["shortest_edge"])
    elif isinstance(size, Mapping) and size.get("height") and size.get("width"):
        rows, columns = size["height"], size["width"]
    else:
        raise ConfigError(f"the rules for pictures have no size that is understood: {size!r}")
    cropped = (crop["height"], crop["width"]) if rules.get("do_center_crop") and isinstance(crop, Mapping) else None
    try:
        return RGBLayout(rows, columns, crop=cropped, square=square)
    except ValueError as error:
        raise ConfigError(f"the rules for pictures do not fit each other: {error}") from error


def picture_tokens(config: Any, side: int) -> int:
    """Return the visual tokens of a picture, by transformers' rule for selecting features of the encoder."""
    vision = config.vision_config
    tokens: int = (side // vision.patch_size) ** 2
    tokens += vision.model_type in WITH_CLASS_TOKEN
    tokens -= config.vision_feature_select_strategy == "default"
    return tokens


def check_picture_tokens(model_dir: Path, config: Any, side: int) -> None:
    """Raise ConfigError if the processor counts other visual tokens in a picture than the model makes.

    transformers takes the rule for selecting features from both processor_config.json and config.json.
    """
    path = model_dir / "processor_config.json"
    rules = read_json(path, default={})
    counted = rules.get("num_image_tokens")
    if counted is None and rules.get("patch_size"):
        counted = (side // rules["patch_size"]) ** 2 + rules.get("num_additional_image_tokens", 0)
    if counted is None:  # it leaves the count to the model
        return
    own, made = rules.get("vision_feature_select_strategy"), picture_tokens(config, side)
    counted -= own == "default"
    if counted != made:
        raise ConfigError(
            f"{path}: with vision_feature_select_strategy {own!r} a picture has {counted} visual tokens, with "
            f"config.json's {config.vision_feature_select_strategy!r} it has {made}: both files must agree"
        )


def filter_of(resample: int) -> Filter:
    """Return torch's name of a filter of Pillow's; raises ConfigError for those that torch lacks."""
    if resample not in FILTERS:
        raise ConfigError(f"images resized with Pillow's filter {resample} are not supported")
    if FILTERS[resample] == "lanczos" and not hasattr(torch._C._nn, "_upsample_lanczos2d_aa"):
        raise ConfigError("this model needs a torch that resizes with LANCZOS: 2.12 or newer")
    return FILTERS[resample]


def cubic_or_linear(resample: int) -> Literal["bicubic", "bilinear"]:
    """Return `filter_of` if FlashCodec has the filter; raises ConfigError otherwise."""
    interpolation = filter_of(resample)
    if interpolation == "lanczos":
        raise ConfigError("images resized with LANCZOS are not supported for this model")
    return interpolation
