"""Schedule the stages by pure functions: from what a worker holds to its next step.

No I/O, no torch and no clock in here, so that the same code runs in the workers, under property tests
and in a simulator.

Pages are taken in one order, patch -> visual -> KV, and a request is let into each buffer only when all
that it will ever need of it is there: pages for all its media, or a window that they go through. So no
two requests can wait for each other's pages.
"""

from unifiedserve.messages.costs import Costs
from unifiedserve.scheduling.budgets import budget_of
from unifiedserve.scheduling.decode import schedule_decode
from unifiedserve.scheduling.encode_prefill import schedule_encode, schedule_in_between, schedule_prefill
from unifiedserve.scheduling.first_token import Outlook, Work, affordable_frames
from unifiedserve.scheduling.held_streams import HeldStreams
from unifiedserve.scheduling.pacing import (
    blend,
    heavy_within_share,
    joins_soon,
    learn_encode,
    learn_step,
    leaves_cores,
    next_start,
    within_share,
)
from unifiedserve.scheduling.policies import (
    Policy,
    continuous_batching,
    encode_prefill,
    goes_between,
    policy_for,
    stage_level,
)
from unifiedserve.scheduling.profile import largest_share
from unifiedserve.scheduling.queue import Queue
from unifiedserve.scheduling.state import (
    Budget,
    Chunk,
    DecodeState,
    EarlyPages,
    EncodeWork,
    Pace,
    Plan,
    PrefillState,
    Pull,
    State,
    Unit,
    VisionState,
    WaitingAnswers,
)
from unifiedserve.scheduling.targets import Targets
from unifiedserve.scheduling.tbt_control import TbtControl
from unifiedserve.scheduling.vision import schedule_vision

__all__ = [
    "Budget",
    "Chunk",
    "Costs",
    "DecodeState",
    "EarlyPages",
    "EncodeWork",
    "HeldStreams",
    "Outlook",
    "Pace",
    "Plan",
    "Policy",
    "PrefillState",
    "Pull",
    "Queue",
    "State",
    "Targets",
    "TbtControl",
    "Unit",
    "VisionState",
    "WaitingAnswers",
    "Work",
    "affordable_frames",
    "blend",
    "budget_of",
    "continuous_batching",
    "encode_prefill",
    "goes_between",
    "heavy_within_share",
    "joins_soon",
    "largest_share",
    "learn_encode",
    "learn_step",
    "leaves_cores",
    "next_start",
    "policy_for",
    "schedule_decode",
    "schedule_encode",
    "schedule_in_between",
    "schedule_prefill",
    "schedule_vision",
    "stage_level",
    "within_share",
]
