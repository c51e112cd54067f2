"""Whatever requests come and however small the buffers, every request that fits alone finishes."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from unifiedserve.scheduling import (
    Budget,
    DecodeState,
    Pace,
    Policy,
    PrefillState,
    State,
    Unit,
    VisionState,
    continuous_batching,
    encode_prefill,
    schedule_vision,
    stage_level,
)

PAGE = 4
KV, VISUAL, PATCH = 12, 8, 8


@dataclass
class Job:
    """A request: text tokens before each unit, the units' visual tokens, tokens to generate."""

    gaps: list[int]
    units: list[int]
    generate: int
    arrival: int = 0
    priority: int = 0
    generated: int = 0


def pages(tokens: int) -> int:
    return -(-tokens // PAGE)


def fits(job: Job) -> bool:
    tokens = sum(job.gaps) + sum(job.units) + job.generate
    visual = sum(map(pages, job.units))
    return tokens > 0 and pages(tokens) <= KV and visual <= VISUAL and len(job.units) <= PATCH


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    units = draw(st.lists(st.integers(1, 8), max_size=4))
    gaps = draw(st.lists(st.integers(0, 10), min_size=len(units), max_size=len(units)))
    last, generate = draw(st.integers(1, 10)), draw(st.integers(1, 20))
    return Job([*gaps, last], units, generate, draw(st.integers(0, 30)), draw(st.integers(-1, 1)))


@dataclass
class Engine:
    """The workers' bookkeeping over counted pages, step by step; each step takes a second."""

    policies: list[Policy]
    budget: Budget
    jobs: dict[int, Job]
    kv: int = KV
    whole_units: bool = False
    keeps_visual: bool = False  # for decode; the units are no part of the prompt, which needs them from its start
    visual: int = VISUAL
    patch: int = PATCH
    promised: dict[int, int] = field(default_factory=dict)
    vision: dict[int, VisionState] = field(default_factory=dict)
    prefills: dict[int, PrefillState] = field(default_factory=dict)
    decodes: dict[int, DecodeState] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)  # visual pages of a request
    done: set[int] = field(default_factory=set)
    preemptions: int = 0
    now: float = 0.0
    pace: Pace = field(default_factory=Pace)

    def arrive(self, uid: int) -> None:
        job = self.jobs[uid]
        position, units = 0, []
        for gap, tokens in zip(job.gaps, job.units, strict=False):
            position += gap
            units.append(Unit(tokens, 0 if self.keeps_visual else position, pages(tokens)))
            position += 0 if self.keeps_visual else tokens
        total = position + job.gaps[-1] + job.generated
        self.prefills[uid] = PrefillState(
            uid, job.arrival, total, pages(total), units, priority=job.priority, whole_units=self.whole_units
        )
        if units:
            self.vision[uid] = VisionState(uid, job.arrival, len(units), priority=job.priority)

    def state(self) -> State:
        return State(
            sorted(self.prefills.values(), key=lambda p: p.turn),
            list(self.decodes.values()),
            self.kv,
            KV,
            self.visual - sum(self.promised.values()),
            self.now,
            self.pace._replace(others_work=bool(self.vision)),
        )

    def step(self) -> None:
        self.now += 1
        ordered = sorted(self.vision.values(), key=lambda v: v.turn)
        promised = sum(v.pages for v in ordered if v.admitted)
        for uid in schedule_vision(ordered, self.patch - promised):
            self.vision[uid].admitted = True
        for vision in ordered:
            if vision.admitted:
                self.decode_media(vision)
        assert self.patch >= 0
        for policy in self.policies:
            self.run(policy)

    def decode_media(self, vision: VisionState) -> None:
        """One unit more of an admitted request becomes ready."""
        next(unit for unit in self.prefills[vision.uid].units if not unit.ready).ready = True
        self.patch -= 1
        vision.pages -= 1
        if vision.pages == 0:
            del self.vision[vision.uid]

    def run(self, policy: Policy) -> None:
        state = self.state()
        if policy is encode_prefill:
            state.decodes = []
        if policy is continuous_batching:
            state.prefills = []
        plan = policy(state, self.budget)
        for uid, units in plan.encode:
            prefill = self.prefills[uid]
            if not prefill.reserved:
                prefill.reserved = True
                self.promised[uid] = prefill.visual_pages
            for i in units:
                assert prefill.units[i].ready
                assert not prefill.units[i].encoded
                prefill.units[i].encoded = True
                self.promised[uid] -= prefill.units[i].pages
                self.visual -= prefill.units[i].pages
                self.held[uid] = self.held.get(uid, 0) + prefill.units[i].pages
                self.patch += 1
        assert self.visual >= 0
        for uid, _ in plan.preempt:
            sequence = self.decodes.pop(uid)
            self.kv += sequence.pages
            self.visual += self.held.pop(uid, 0)
            self.preemptions += 1
            self.arrive(uid)
        if plan.decode:
            self.pace = Pace(self.now, self.now + 1)
        for uid, _ in plan.decode:
            self.advance(uid)
        for uid, start, stop in plan.prefill:
            self.prefill(uid, start, stop)

    def prefill(self, uid: int, start: int, stop: int) -> None:
        prefill = self.prefills[uid]
        assert prefill.prefilled == start < stop <= prefill.reach
        inside = any(unit.position < stop < unit.position + unit.tokens for unit in prefill.units)
        assert not (self.whole_units and inside)
        if not prefill.admitted:
            prefill.admitted = True
            self.kv -= prefill.kv_pages
            assert self.kv >= 0
        prefill.prefilled = stop
        if stop == prefill.num_tokens:
            if not self.keeps_visual:
                self.visual += self.held.pop(uid, 0)
            del self.prefills[uid]
            self.promised.pop(uid, None)
            self.jobs[uid].generated += 1
            self.decodes[uid] = DecodeState(uid, 0, prefill.arrival, stop + 1, prefill.kv_pages, prefill.priority)
            self.finish_if_done(uid)

    def advance(self, uid: int) -> None:
        sequence = self.decodes[uid]
        grown = pages(sequence.num_tokens)
        self.kv -= grown - sequence.pages
        assert self.kv >= 0
        sequence.pages = grown
        sequence.num_tokens += 1
        self.jobs[uid].generated += 1
        self.finish_if_done(uid)

    def finish_if_done(self, uid: int) -> None:
        if self.jobs[uid].generated >= self.jobs[uid].generate:
            self.kv += self.decodes.pop(uid).pages
            self.visual += self.held.pop(uid, 0)
            self.done.add(uid)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(jobs().filter(fits), min_size=1, max_size=8),
    st.sampled_from([[encode_prefill, continuous_batching], [stage_level]]),
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(),
    st.sampled_from(["embedded", "whole", "kept"]),
)
def test_every_request_finishes_and_pages_return(
    work: list[Job],
    policies: list[Policy],
    prefill: int,
    encode: int,
    running: int,
    reserve: int,
    target: float,
    overlap: bool,
    visual: str,
) -> None:
    budget = Budget(prefill, encode, running, PAGE, reserve, target, overlap=overlap)
    jobs = dict(enumerate(work))
    engine = Engine(policies, budget, jobs, whole_units=visual == "whole", keeps_visual=visual == "kept")
    for now in range(4000):
        for uid, job in engine.jobs.items():
            if job.arrival == now:
                engine.arrive(uid)
        engine.step()
        if len(engine.done) == len(work):
            break
    assert len(engine.done) == len(work), "a request is stuck"
    assert (engine.kv, engine.visual, engine.patch) == (KV, VISUAL, PATCH)
