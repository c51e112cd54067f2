"""Define every option of `unifiedserve plan`, once."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.bench.options import (
    BetweenTokensTarget,
    Count,
    FirstTokenTarget,
    PromptTokenTarget,
    VideoSecondTarget,
)

Objective = Literal["goodput", "e2etp-cost"]


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choose what is planned for, and how much is tried."""

    trace: Annotated[
        str,
        Meta(
            description="What comes: the file of a trace (Azure's, ServeGen's, Mooncake's; FILE?from=60&first=100 is a "
            "part of it), a workload of unifiedserve bench such as mixed, image or video, or a .toml file of one's own"
        ),
    ] = "mixed"
    model: Annotated[
        str,
        Meta(
            description="The model, whose profile was measured on this machine with unifiedserve profile. Empty: the "
            "bundled one"
        ),
    ] = ""
    profile: Annotated[
        str, Meta(description="The file of a profile, of any model and hardware. Empty: the one measured here")
    ] = ""
    devices: Annotated[
        int, Meta(description="The number of GPUs of the profile's kind; a CPU's cores are one device")
    ] = 1
    objective: Annotated[
        Objective,
        Meta(
            description="The figure to maximise. goodput: the highest rate at which nine of ten requests meet their "
            "targets; e2etp-cost: requests completed a second when all wait from the start, less --device-cost for "
            "each device"
        ),
    ] = "goodput"
    device_cost: Annotated[
        float, Meta(ge=0, description="Requests a second that each device has to bring to be worth it (e2etp-cost)")
    ] = 0.0
    slo_ttft: FirstTokenTarget = None
    slo_ttft_per_video_second: VideoSecondTarget = 0.0
    slo_ttft_per_prompt_token: PromptTokenTarget = 0.0
    slo_tbt: BetweenTokensTarget = None
    requests: Annotated[int, Meta(ge=2, description="Requests that are simulated; a trace may have fewer")] = 150
    cv: Annotated[
        float,
        Meta(
            ge=0.001,
            le=1000,
            description="The unevenness of the gaps between requests of a workload: their deviation over their mean. "
            "1: a Poisson process, more: bursts. A trace has its own",
        ),
    ] = 1.0
    frames: Annotated[
        Count | None, Meta(description="Frames that are sampled of each video. Default: two a second, 768 at most")
    ] = None
    texts_only: Annotated[bool, Meta(description="Plan for a trace without any media")] = False
    seconds: Annotated[
        float, Meta(gt=0, description="The time for the search; Ctrl-C ends it with the best so far")
    ] = 60.0
    trials: Annotated[int, Meta(ge=1, description="The most candidates to try")] = 1000
    processes: Annotated[int, Meta(ge=0, description="Processes that simulate. 0: one for each core")] = 0
    seed: Annotated[int, Meta(ge=0, description="The seed of the requests and of the search")] = 0
    out: Annotated[
        str,
        Meta(
            description="The folder for the files: placement.toml for serve --placement, plan.json and a picture. "
            "Empty: none"
        ),
    ] = "plan"
    json: Annotated[bool, Meta(description="Print JSON instead of tables")] = False
