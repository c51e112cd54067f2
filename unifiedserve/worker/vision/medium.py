"""Follow an image or a video on its way to patches."""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from unifiedserve.errors import ErrorKind
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.wire import MediaSource


@dataclass(slots=True)
class Output:
    """Report decoded units of a request, or why there are none. Times are monotonic seconds."""

    uid: int
    started: float
    ended: float
    units: list[int] = field(default_factory=list)
    plan: MediaPlan | None = None
    patches: Tensor | None = None  # uint8 [units, bytes], of the host or of the device
    engine: int = 0
    decoded_on: str = ""  # "cpu" or "gpu", of a video
    error: str = ""
    kind: ErrorKind = ErrorKind.INVALID  # of the error
    param: str | None = None  # the field of the request at fault


@dataclass(frozen=True, slots=True)
class Medium:
    """Decode an image or a video: the units in `wanted`, in `groups` of frames."""

    uid: int
    name: str
    param: str
    plan: MediaPlan
    first_unit: int  # of the request
    wanted: Collection[int]
    groups: list[int]

    @classmethod
    def of(cls, uid: int, source: MediaSource) -> "Medium":
        """Return what is to be decoded of a source."""
        groups = sorted({unit // source.plan.units_per_group for unit in source.wanted})
        return cls(uid, source.name, source.param, source.plan, source.first_unit, set(source.wanted), groups)

    def output(self, group: int, patches: Tensor, began: float, ended: float) -> Output:
        """Return the wanted units in the patches of a group of frames or an image."""
        count = self.plan.units_per_group
        wanted = [unit for unit in range(count) if group * count + unit in self.wanted]
        rows = patches.reshape(count, -1)
        if len(wanted) < count:
            rows = rows[wanted]
        units = [self.first_unit + group * count + unit for unit in wanted]
        return Output(self.uid, began, ended, units, self.plan, rows)
