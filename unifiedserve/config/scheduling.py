"""Choose the order of requests, and the contents of a step."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError

Order = Literal["fcfs", "slack", "shortest"]
DualStreams = Literal["auto", "on", "off"]
Scheduling = Literal["adaptive", "stage-level", "prefill-encode"]
DEFAULT_BUDGET = 512  # tokens of a step
_SHORT_TARGET = 1.0  # seconds to a short request's first token, where the user gives no target
_PACE = 2.45  # lone decode steps between tokens while videos are worked on: streams keep about a third of their speed
_REST = 0.8  # share of a step that decode leaves all cores to others after it; in the step it uses half of them
_LEAST_REST = 0.1  # the same if the user gives a target, which goes first
_STRETCH = 1.8  # factor of the beat while more wait than stream: few streams see no gap of five steps
_JOINING = 3.0  # the same while short prompts are about to join, which is soon over; more than that gains little


class SchedulingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choose the order of requests, and the contents of a step."""

    order: Annotated[
        Order,
        Meta(
            description="The order in which requests are served in every stage, within the same priority. slack: "
            "the request first that would otherwise miss its target for the first token; shortest: the "
            "least remaining work first, but nobody waits for ever; fcfs: first come, first served"
        ),
    ] = "slack"
    scheduling: Annotated[
        Scheduling,
        Meta(
            description="The algorithm that fills the steps. adaptive: this engine's own; stage-level: HydraInfer's "
            "Algorithm 1; prefill-encode: UnifiedServe's Algorithm 3, where a process without decode encodes and "
            "prefills. The last two are as published, in order of arrival and without pacing, for comparisons"
        ),
    ] = "adaptive"
    slo_ttft: Annotated[
        float,
        Meta(
            ge=0,
            description="The target for the time to first token, in milliseconds; a request may set its own with "
            "`slo_ttft`. If given, a step that encodes or prefills where nothing decodes takes half of it at most. "
            "0: five times what the request would take alone, as measured",
        ),
    ] = 0.0
    slo_ttft_visual: Annotated[
        float,
        Meta(
            ge=0,
            description="Milliseconds that each visual token adds to the target for the first token, so that a long "
            "video is not held to the target of a text",
        ),
    ] = 5.0
    slo_tbt: Annotated[
        float,
        Meta(
            ge=0,
            description="The target for the time between tokens of a stream while videos are processed, in "
            "milliseconds. Higher values finish videos sooner, lower ones keep streams faster. 0: 2.45 "
            "times the duration of a step alone, measured at the start",
        ),
    ] = 0.0
    no_overlap: Annotated[
        bool,
        Meta(
            description="Encode a request only after all its media are decoded, and prefill it only after all are "
            "encoded. For comparisons"
        ),
    ] = False
    no_pacing: Annotated[
        bool,
        Meta(
            description="Do not slow streams down while videos are processed: there is no target between tokens. "
            "For comparisons"
        ),
    ] = False
    dual_streams: Annotated[
        DualStreams,
        Meta(
            description="Whether a worker that hosts encode and also prefill or decode runs them side by side, not in "
            "turns: on a CPU each on half of the threads while a batch is encoded, on a GPU in two streams. auto: on a "
            "GPU if the worker decodes, never on a CPU. Set on or off to compare"
        ),
    ] = "auto"
    naive: Annotated[
        bool,
        Meta(
            description="Work as the baseline of papers does, for comparisons: whole prompts, encoding within the "
            "step, one queue, no overlap and no pacing. Needs --placement monolithic"
        ),
    ] = False
    record: Annotated[
        str,
        Meta(
            description="A folder for what the schedulers of all stages are told and what they decide, "
            "which unifiedserve replay decides again. Empty: nothing is recorded"
        ),
    ] = ""
    prefill_chunk_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="Prompt tokens that one step of prefill computes at most: the papers' token budget. Smaller "
            "steps let short requests in sooner, larger ones finish long prompts sooner. 0: whole prompts",
        ),
    ] = DEFAULT_BUDGET
    encode_budget_tokens: Annotated[
        int,
        Meta(
            ge=1,
            description="Visual tokens that one step of the encoder computes at most: the papers' encode or image "
            "budget. At least one image or pair of frames. Smaller steps let other work in sooner",
        ),
    ] = DEFAULT_BUDGET
    budgets: Annotated[
        Literal["fixed", "profiled"],
        Meta(
            description="Where the sizes of steps come from. fixed: --prefill-chunk-tokens and --encode-budget-tokens; "
            "profiled: each worker tries out at its start how large steps may be to end within the target between "
            "tokens, where it decodes, or within half of --slo-ttft elsewhere. Take it on machines much faster or "
            "slower than a desktop's"
        ),
    ] = "fixed"
    max_running: Annotated[
        int,
        Meta(
            ge=1,
            description="The most answers that are generated at the same time; further requests wait. Raise it for "
            "throughput if there is memory for their contexts",
        ),
    ] = 64
    speculative_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=31,
            description="Tokens that a decode step on a CPU guesses and checks at once, for all answers together, "
            "where a text repeats itself. Answers stay the same and come sooner. 0: no guesses; a GPU "
            "never guesses",
        ),
    ] = 7
    max_requests: Annotated[
        int,
        Meta(ge=1, description="The most requests in the engine, waiting ones included; further requests get a 429"),
    ] = 512
    max_queue_time: Annotated[
        float,
        Meta(
            ge=0,
            description="The longest estimated wait in seconds; a request that would wait longer gets a 429 at "
            "once. 0: no limit",
        ),
    ] = 600.0

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.no_pacing and self.slo_tbt:
            raise ConfigError("--no-pacing means that there is no --slo-tbt: leave one out")
        if self.dual_streams == "on" and self.naive:
            raise ConfigError("--naive encodes within the step, not beside it as --dual-streams on: leave one out")
        self._check_published()
        if self.budgets == "profiled" and self.naive:
            raise ConfigError("--naive has steps without budgets: leave out --budgets profiled")
        for option, tokens in (
            ("--prefill-chunk-tokens", self.prefill_chunk_tokens),
            ("--encode-budget-tokens", self.encode_budget_tokens),
        ):
            if self.budgets == "profiled" and tokens != DEFAULT_BUDGET:
                raise ConfigError(f"--budgets profiled finds what {option} {tokens} says: leave one out")

    def _check_published(self) -> None:
        if self.scheduling == "adaptive":
            return
        option = f"--scheduling {self.scheduling}"
        if self.naive:
            raise ConfigError(f"--naive is an algorithm of its own beside {option}: leave one out")
        if self.order == "shortest":
            raise ConfigError(f"{option} serves requests as they arrive, not --order shortest: leave one out")
        if self.budgets == "profiled":
            raise ConfigError(f"{option} finds its own budgets as it goes: leave out --budgets profiled")

    @property
    def service_order(self) -> Order:
        """Return the order of requests."""
        return "fcfs" if self.naive or self.scheduling != "adaptive" else self.order

    @property
    def short_tokens(self) -> int:
        """Return the most tokens of a short request.

        A share of each step is kept for those; they are two steps' worth.
        """
        return 2 * self.prefill_chunk_tokens

    @property
    def step_seconds(self) -> float:
        """Return the most seconds of a step that prefills: half the target of short requests.

        These may come meanwhile.
        """
        return (self.slo_ttft / 1000 or _SHORT_TARGET) / 2

    @property
    def step_cap(self) -> float:
        """Return the longest that a step may take where nothing decodes; 0 if the user gave no target for it."""
        if self.scheduling == "prefill-encode":
            return self.slo_tbt / 1000
        return self.step_seconds if self.slo_ttft else 0.0

    def seconds_between_tokens(self, decode_step: float) -> float:
        """Return the target for streams beside heavy work, from a lone decode step's seconds."""
        return self.slo_tbt / 1000 or _PACE * decode_step

    @property
    def pace(self) -> float:
        """Return the times of a step's own time that the target is at least; 0 if the user gave the target."""
        return 0.0 if self.slo_tbt else _PACE

    @property
    def rest_between_steps(self) -> float:
        """Return the least rest for others after a decode step, as a share of it."""
        return _LEAST_REST if self.slo_tbt else _REST

    @property
    def stretch(self) -> float:
        """Return the most targets between tokens while more requests wait than stream.

        It is 1 if the user gave the target.
        """
        return 1.0 if self.slo_tbt else _STRETCH

    @property
    def stretch_joining(self) -> float:
        """Return the same while some are about to join the streams."""
        return 1.0 if self.slo_tbt else _JOINING
