"""Mix kinds of requests: the share of each and the distributions of their shapes, written in TOML."""

import math
from pathlib import Path
from typing import Any

import msgspec

from unifiedserve.bench.workloads.distributions import Distribution, distribution
from unifiedserve.bench.workloads.media.recipes import Codec
from unifiedserve.errors import ConfigError

_PRESETS = Path(__file__).parent / "presets"


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describe requests of one sort. Every value is drawn again for each of them.

    Tokens are drawn also for each turn. Images and videos come with the first turn. `pixels` are those of an image;
    `seconds` and `size`, width and height, those of a video, in one of the `codecs`. `pause` are the seconds between an
    answer and the next turn.
    """

    name: str
    share: float
    text_tokens: Distribution
    output_tokens: Distribution
    images: Distribution = distribution(0)
    pixels: Distribution = distribution("lognormal:median=400_000,p95=1_500_000,min=50_000,max=4_000_000")
    videos: Distribution = distribution(0)
    seconds: Distribution = distribution(60)
    size: tuple[int, int] = (640, 360)
    codecs: tuple[Codec, ...] = ("h264",)
    turns: Distribution = distribution(1)
    pause: Distribution = distribution(0)


class Mix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the kinds of requests. Shares are relative to their sum."""

    kind: tuple[Kind, ...]


def presets() -> list[str]:
    """Return the names of the mixtures that come with the package."""
    return sorted(path.stem for path in _PRESETS.glob("*.toml"))


def load(name: str) -> Mix:
    """Return a preset, or the mixture in the file of this name.

    Raises ConfigError if there is none, or if something in it makes no sense.
    """
    path = _PRESETS / f"{name}.toml" if name in presets() else Path(name).expanduser()
    try:
        mix = msgspec.toml.decode(path.read_bytes(), type=Mix, dec_hook=_distribution)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    _check(path, mix)
    return mix


def _distribution(wanted: type, value: Any) -> Any:
    try:
        return distribution(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None  # msgspec adds where it stands


def _check(path: Path, mix: Mix) -> None:
    for kind in mix.kind:
        if min(kind.size) < 16 or any(side % 2 for side in kind.size):
            raise ConfigError(f"{path}: the size of {kind.name} must be even and at least 16x16, not {kind.size}")
        if not kind.codecs:
            raise ConfigError(f"{path}: {kind.name} needs at least one codec: h264, hevc or vp9")
        if not 0 <= kind.share < math.inf:
            raise ConfigError(f"{path}: the share of {kind.name} must be zero or more, not {kind.share:g}")
    if not sum(kind.share for kind in mix.kind) > 0:
        raise ConfigError(f"{path}: no kind has a share above zero")
