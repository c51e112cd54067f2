"""Define what decoders return: a frame, or a batch of frames, with their times."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from flashcodec.errors import DecodeError


class Array(Protocol):
    """Define what arrays of NumPy and tensors of PyTorch have in common."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...


ArrayT = TypeVar("ArrayT", bound=Array)


@dataclass(repr=False)
class FrameOf(Generic[ArrayT]):
    """Hold a frame: `data` is uint8 [3, height, width] or [height, width, 3]; times are in seconds.

    Unpacks into (data, pts_seconds, duration_seconds). Raises ValueError if `data` has not three dimensions.
    """

    data: ArrayT
    pts_seconds: float
    duration_seconds: float

    def __post_init__(self) -> None:
        if self.data.ndim != 3:
            raise ValueError(f"data must be 3-dimensional, got shape {tuple(self.data.shape)}")
        self.pts_seconds = float(self.pts_seconds)
        self.duration_seconds = float(self.duration_seconds)

    def __iter__(self) -> Iterator[ArrayT | float]:
        return iter((self.data, self.pts_seconds, self.duration_seconds))

    def __repr__(self) -> str:
        return _described(self)


@dataclass(repr=False)
class FrameBatchOf(Generic[ArrayT]):
    """Hold frames and their times. Indexing, slicing and iterating give batches again.

    Attributes:
        data: uint8 [n, 3, height, width] or [n, height, width, 3]; clips have one more dimension in front.
        pts_seconds: float64 [n], when each frame is shown.
        duration_seconds: float64 [n], for how long.
        indices: int64 [n], the number of each frame in presentation order; None in a batch made by hand.
        damaged: what is wrong with frames that were asked for, by frame number. With on_error="skip" they are not
            in the batch, with "nearest" another frame is in their place; with "raise" frames are listed here that
            the decoder gave out although parts of them were lost.

    Raises ValueError if the shapes do not fit together.
    """

    data: ArrayT
    pts_seconds: ArrayT
    duration_seconds: ArrayT
    indices: ArrayT | None = None
    damaged: Mapping[int, DecodeError] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        leading = tuple(self.data.shape[:-3])
        if self.data.ndim < 3:
            raise ValueError(f"data must be at least 3-dimensional, got shape {tuple(self.data.shape)}")
        for name, field in self._by_frame().items():
            if tuple(field.shape) != leading:
                shape = tuple(field.shape)
                raise ValueError(f"{name} has shape {shape}, but data has {tuple(self.data.shape)}: not {leading}")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: Any) -> Self:
        taken = {name: field[key] for name, field in self._by_frame().items()}
        return dataclasses.replace(self, data=self.data[key], **taken)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return _described(self)

    def in_clips(self, num_clips: int) -> Self:
        """Return the same frames as `num_clips` clips of equal length, one after the other. They are not copied."""
        shape = (num_clips, len(self) // num_clips)
        clips: dict[str, Any] = {name: field.reshape(shape) for name, field in self._by_frame().items()}
        data: Any = self.data
        return dataclasses.replace(self, data=data.reshape(shape + tuple(data.shape[1:])), **clips)

    def _by_frame(self) -> dict[str, Any]:
        fields = {"pts_seconds": self.pts_seconds, "duration_seconds": self.duration_seconds, "indices": self.indices}
        return {name: field for name, field in fields.items() if field is not None}


class Frame(FrameOf[npt.NDArray[np.uint8]]):
    __doc__ = FrameOf.__doc__


class FrameBatch(FrameBatchOf[npt.NDArray[Any]]):
    __doc__ = FrameBatchOf.__doc__


def _described(frames: "FrameOf[Any] | FrameBatchOf[Any]") -> str:
    lines = [f"{type(frames).__name__}:", f"  data (shape): {frames.data.shape}"]
    for field in dataclasses.fields(frames)[1:]:
        value = getattr(frames, field.name)
        if field.name not in ("indices", "damaged") or (value is not None and len(value)):
            lines.append(f"  {field.name}: {value}")
    return "\n".join(lines) + "\n"
