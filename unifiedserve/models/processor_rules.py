"""Read the rules of a checkpoint's processors: each field of their files is followed as in transformers, or refused."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import read_json
from unifiedserve.models.hub import load_transformers

NESTED, IMAGES, VIDEOS = "processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"
FOLLOWED = frozenset({"resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "size"})
#: fields that change neither pixels nor tokens: pictures are always made RGB, frames always sampled, what would be
#: padded is of one size already, and nothing is cropped without `do_center_crop`
WITHOUT_EFFECT = frozenset({
    "crop_size", "data_format", "default_to_square", "device", "disable_grouping", "do_convert_rgb", "do_pad",
    "do_sample_frames", "image_seq_length", "input_data_format", "return_metadata", "return_tensors", "video_metadata",
})  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """Hold a processor's fields. Those that its file leaves out are its class's own."""

    place: str  # the file, and the object in it
    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    name: str = ""  # of an image processor's class, without what tells its implementations apart

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def has(self, name: str) -> bool:
        """Return whether the file itself gives a field."""
        return self.values[name] is not self.defaults[name]

    def error(self, name: str, wanted: str) -> ConfigError:
        """Return an error with the field, its value, and what is wanted instead."""
        return ConfigError(f"{self.place}: {name} is {json.dumps(self.values[name])}, which must be {wanted}")

    def check(self, followed: Collection[str]) -> None:
        """Raise ConfigError for a field that is neither followed nor what its class has."""
        for name in sorted(self.defaults.keys() - FOLLOWED - WITHOUT_EFFECT - set(followed)):
            if not _same(self.values[name], self.defaults[name]):
                raise self.error(name, f"{json.dumps(self.defaults[name])} for this model")

    def check_class(self, classes: Collection[str]) -> None:
        """Raise ConfigError for a processor whose rules are not known here."""
        if self.name and self.name not in classes:
            wanted = " or ".join(sorted(classes))
            raise ConfigError(
                f"{self.place}: image_processor_type is {self.name}, which must be {wanted} for this model"
            )

    def require(self, name: str, *wanted: Any) -> None:
        """Raise ConfigError for a field with another value than those that are wanted."""
        if not any(_same(self.values[name], value) for value in wanted):
            raise self.error(name, " or ".join(map(json.dumps, wanted)))


def image_rules(model_dir: Path) -> Rules:
    """Read the rules for images as transformers' image processor has them."""
    place, _ = image_file(model_dir)
    try:
        processor = load_transformers().AutoImageProcessor.from_pretrained(model_dir)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise ConfigError(f"{place}: the rules for images cannot be read: {reason}") from error
    names = processor.valid_kwargs.__annotations__
    values = {name: _plain(getattr(processor, name, None)) for name in names}
    defaults = {name: _plain(getattr(type(processor), name, None)) for name in names}
    return Rules(place, values, defaults, _class_name(type(processor).__name__))


def video_rules(model_dir: Path, defaults: Mapping[str, Any]) -> Rules:
    """Read the rules for videos over the defaults of their class in transformers."""
    return raw_rules(*video_file(model_dir), defaults)


def raw_rules(place: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Rules:
    """Return a file's fields over the defaults of a class; null stands, which few fields may be."""
    name = _class_name(given.get("image_processor_type") or "")
    return Rules(place, {name: given.get(name, default) for name, default in defaults.items()}, defaults, name)


def image_file(model_dir: Path) -> tuple[str, Mapping[str, Any]]:
    """Find the fields for images where transformers looks first, and say where they are."""
    nested = read_json(model_dir / NESTED, default={})
    if given := nested.get("image_processor"):
        return f"{model_dir / NESTED}: image_processor", given
    return str(model_dir / IMAGES), read_json(model_dir / IMAGES, default={})


def video_file(model_dir: Path) -> tuple[str, Mapping[str, Any]]:
    """Find the fields for videos where transformers looks first, maybe those for images."""
    nested = read_json(model_dir / NESTED, default={})
    if given := nested.get("video_processor"):
        return f"{model_dir / NESTED}: video_processor", given
    name = VIDEOS if (model_dir / VIDEOS).is_file() else IMAGES
    return str(model_dir / name), read_json(model_dir / name, default={})


def _class_name(name: str) -> str:
    return name.removesuffix("Fast").removesuffix("Pil")


def _same(value: Any, other: Any) -> bool:
    """Compare values of a field; null is the same as false."""
    if isinstance(value, bool) or isinstance(other, bool):
        return (value or False) == (other or False)
    return bool(value == other)


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if hasattr(value, "shortest_edge"):  # a SizeDict
        return {name: pixels for name, pixels in vars(value).items() if pixels is not None}
    return list(value) if isinstance(value, tuple) else value
