"""Process for families whose encoder reads square pictures of one size: CLIP, SigLIP, InternViT.

A row of the patch buffer is a piece of a picture [3, side, side], of three times the side's bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal

from flashcodec.geometry import shortest_edge_size

from flashcodec import RGBLayout
from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.messages.layouts import Filter
from unifiedserve.messages.media import MediaKind, MediaOptions, MediaPlan, PromptError
from unifiedserve.models.normalisation import moments_of
from unifiedserve.models.processor import Processor
from unifiedserve.models.processor_defaults import VIDEO_DEFAULTS
from unifiedserve.models.processor_rules import NESTED, Rules, image_rules, video_rules

WITH_CLASS_TOKEN = {"clip_vision_model"}
#: by Pillow's numbers, which are those in checkpoints
FILTERS: Mapping[int, Filter] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}

Units = Sequence[tuple[MediaPlan, int]]


class PictureProcessor(Processor, ABC):
    """Process by the checkpoint's rules for images and videos. The family tells the `side` of the pictures.

    Raises ConfigError if the rules are missing or malformed, or not those that the family follows.
    """

    #: the classes of transformers' image processors that are known, and the fields of their own that are followed
    image_processors: ClassVar[frozenset[str]]
    image_fields: ClassVar[frozenset[str]] = frozenset()
    video_fields: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        rules = picture_rules(model_dir, config)
        self.image_rules = rules["image"]
        self.image_rules.check_class(self.image_processors)
        self.image_rules.check(self.image_fields)
        if "video" in rules:
            self.video_rules = rules["video"]
            self.video_rules.check(self.video_fields)
        for each in rules.values():
            moments_of(each)
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


def picture_rules(model_dir: Path, config: Any) -> dict[MediaKind, Rules]:
    """Read a checkpoint's rules for each kind of media that its family takes."""
    rules: dict[MediaKind, Rules] = {"image": image_rules(model_dir)}
    if config.model_type in VIDEO_DEFAULTS:
        rules["video"] = video_rules(model_dir, VIDEO_DEFAULTS[config.model_type])
    return rules


def square_side(rules: Rules, name: str = "size") -> int:
    """Return the side of the squares that a field describes by height and width; ConfigError if it does not."""
    size = rules[name]
    height, width = (size.get("height"), size.get("width")) if isinstance(size, Mapping) else (None, None)
    if not height or height != width:
        raise rules.error(name, "the equal height and width of a square")
    return int(height)


def check_side(rules: Rules, name: str, side: int, config: Any) -> None:
    """Raise ConfigError for pictures of another size than the encoder reads. A field sets `side` pixels."""
    wanted = config.vision_config.image_size
    if side != (wanted if isinstance(wanted, int) else wanted[0]):
        raise rules.error(name, f"of {wanted} pixels, as config.json's vision_config.image_size")


def mean_colour(rules: Rules) -> tuple[int, int, int]:
    """Return the colour with which transformers pads pictures to squares."""
    red, green, blue = (int(255 * mean) for mean in rules["image_mean"])
    return red, green, blue


class WholePicture:
    """Show pictures whole, or their middle: resized to a size or by their shorter side, then cropped.

    If there is a colour for a `square`, they are first padded with it to one. Raises ConfigError unless they all
    become squares.
    """

    def __init__(self, rules: Rules, square: tuple[int, int, int] | None = None) -> None:
        rules.require("do_resize", True)
        self._square = square
        self._interpolation = interpolation_of(rules)
        size = rules["size"]
        self._edge = size["shortest_edge"] if _keys(size) == {"shortest_edge"} else None
        self._crop = square_side(rules, "crop_size") if rules["do_center_crop"] else None
        if self._edge and (self._crop or square):
            self._side = int(self._edge)
        else:
            self._side = square_side(rules)
        if self._crop and self._crop > self._side:
            raise rules.error("crop_size", f"no larger than size, {self._side} pixels")

    @property
    def side(self) -> int:
        """Return the pictures' side."""
        return self._crop or self._side

    def layout(self, height: int, width: int) -> RGBLayout:
        """Return the layout of a picture of `height` × `width`."""
        rows, columns = self._side, self._side
        if self._edge and not self._square:
            rows, columns = shortest_edge_size(height, width, self._edge)
        crop = (self._crop, self._crop) if self._crop else None
        return RGBLayout(rows, columns, interpolation=self._interpolation, crop=crop, square=self._square)


def _keys(size: Any) -> set[str]:
    return set(size) if isinstance(size, Mapping) else set()


def picture_tokens(config: Any, side: int) -> int:
    """Return the visual tokens of a picture, by transformers' rule for selecting an encoder's features."""
    vision = config.vision_config
    tokens: int = (side // vision.patch_size) ** 2
    tokens += vision.model_type in WITH_CLASS_TOKEN
    tokens -= config.vision_feature_select_strategy == "default"
    return tokens


def check_picture_tokens(model_dir: Path, config: Any, side: int) -> None:
    """Raise ConfigError if the processor and the model count a picture's visual tokens differently.

    transformers takes the rule for selecting features from both processor_config.json and config.json.
    """
    path = model_dir / NESTED
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


def filter_of(rules: Rules) -> Filter:
    """Return torch's name of the filter of a processor's rules; raises ConfigError for those that torch lacks."""
    if rules["resample"] not in FILTERS:
        raise rules.error("resample", "1, 2 or 3 (LANCZOS, BILINEAR, BICUBIC)")
    found = FILTERS[rules["resample"]]
    if found == "lanczos" and tuple(map(int, version("torch").split(".")[:2])) < (2, 12):
        raise rules.error("resample", "2 or 3 (BILINEAR, BICUBIC) with a torch before 2.12")
    return found


def interpolation_of(rules: Rules) -> Literal["bicubic", "bilinear"]:
    """Return FlashCodec's name of the filter of a processor's rules; raises ConfigError for those that it lacks."""
    found = FILTERS.get(rules["resample"])
    if found is None or found == "lanczos":
        raise rules.error("resample", "2 or 3 (BILINEAR, BICUBIC) for this model")
    return found
