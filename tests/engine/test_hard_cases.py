"""Requests that once could stop the daemon, starve others or be refused without need."""

import concurrent.futures
import os
import signal
from collections.abc import Callable
from threading import Event

import openai
import pytest
from completions import TIGHT_BUFFERS, ask, tokens
from daemon import Daemon
from media import Clip, text_part
from vision_requests import let_in

from flashcodec import PatchLayout
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.media import MediaPlan, Source
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, PrefillRequest, Span
from unifiedserve.observe.tracing import Timeline
from unifiedserve.placement import FIRST_MEMORY, Stage
from unifiedserve.worker.language.prompt_units import PromptUnits
from unifiedserve.worker.vision.stage import MediaBuffers, VisionStage

WORKERS = pytest.mark.daemon("what could stop real workers")


def video_plan(frames: tuple[int, ...]) -> MediaPlan:
    return MediaPlan(
        kind="video",
        frame_indices=frames,
        layout=PatchLayout(56, 56, 14, 2, 2),
        units=len(frames) // 2,
        patches_per_unit=16,
        tokens_per_unit=4,
        seconds_per_unit=0.25,
    )


@WORKERS
def test_an_enormous_stop_string_is_refused_and_the_engine_goes_on(daemon: Daemon) -> None:
    with pytest.raises(openai.BadRequestError, match="stop"):
        ask(daemon, text_part("Hello"), stop="x" * 3_000_000)
    assert tokens(daemon, text_part("Hello"))
    daemon.wait_idle()


@WORKERS
@pytest.mark.daemon(**TIGHT_BUFFERS)
def test_the_answer_may_take_what_the_cache_holds_when_no_limit_is_given(daemon: Daemon) -> None:
    completion = ask(daemon, text_part("Hello"), max_tokens=None, extra_body={"ignore_eos": True})
    _, pages = daemon.engine.observation.buffers()[FIRST_MEMORY, "kv"]
    page_tokens = daemon.engine.config.memory.kv_page_tokens
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage.total_tokens == pages * page_tokens + 1  # the last token is never cached
    daemon.wait_idle()


@WORKERS
@pytest.mark.daemon(max_requests=2, max_running=1)
def test_more_requests_than_allowed_are_refused_at_once(daemon: Daemon) -> None:

    def attempt(number: int) -> str:
        try:
            return "served" if tokens(daemon, text_part(f"Hello {number}"), max_tokens=100) else "empty"
        except openai.RateLimitError as error:
            return f"come again in {error.response.headers['retry-after']}"

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(attempt, range(16)))
    assert outcomes.count("served") >= 2
    waits = [int(outcome.split()[-1]) for outcome in outcomes if outcome != "served"]
    assert waits
    assert all(1 <= seconds <= 60 for seconds in waits)
    daemon.wait_idle()


@WORKERS
@pytest.mark.daemon(max_running=1, max_queue_time=1e-6)
def test_requests_that_would_wait_too_long_are_refused_until_there_is_no_queue(daemon: Daemon) -> None:
    client = daemon.client.with_options(max_retries=0)

    def attempt(number: int) -> str:
        asked = {"role": "user", "content": f"Hello {number}"}
        try:
            client.chat.completions.create(model=daemon.engine.model_name, messages=[asked], max_tokens=20)
        except openai.RateLimitError as error:
            return error.message
        return "served"

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        outcomes = set(pool.map(attempt, range(64)))
    assert "served" in outcomes
    assert all("before this one" in outcome for outcome in outcomes - {"served"})
    assert len(outcomes) > 1
    daemon.wait_idle()
    assert attempt(65) == "served"


@WORKERS
def test_a_request_that_keeps_killing_workers_is_given_up_and_others_are_served(daemon: Daemon) -> None:
    chunks = iter(ask(daemon, text_part("Hello"), stream=True, max_tokens=8000, extra_body={"ignore_eos": True}))
    pids = daemon.engine.observation.worker_pids()
    for _ in range(2):
        next(chunks)
        daemon.wait_for(lambda: bool(daemon.engine.observation.worked_on("decode")))
        os.kill(daemon.engine.observation.worker_pids()["decode"], signal.SIGKILL)
        daemon.wait_healthy(False)
        daemon.wait_healthy()
    with pytest.raises(openai.APIError, match="workers died 2 times"):
        list(chunks)
    with pytest.raises(openai.UnprocessableEntityError, match="this request: it is refused for 10 minutes"):
        ask(daemon, text_part("Hello"))
    assert tokens(daemon, text_part("Still there?"))
    assert {**daemon.engine.observation.worker_pids(), "decode": pids["decode"]} == pids
    daemon.wait_idle()


def test_a_video_that_has_fewer_frames_than_when_it_was_admitted_ends_its_request_only(
    patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip]
) -> None:
    finished = Event()
    stage = VisionStage({FIRST_MEMORY: MediaBuffers(patches, visual)}, 1, 1, finished.set)
    try:
        path = str(clips(8).path)
        for uid, frames in ((1, (6, 9)), (2, (0, 7))):
            source = MediaSource(plan=video_plan(frames), name="video 1", where=Source(path=path))
            let_in(stage, Ticket(uid, uid), source)
            finished.wait()
            finished.clear()
            (output,) = stage.take_outputs()
            if uid == 1:
                assert output.error.startswith("video 1: ")
                stage.drop(uid)
            else:
                message = stage.write(output)
                assert message is not None
                assert [patches.pool.release(pages) for pages in message.pages] == [1]
                visual.release([page for pages in message.visual for page in pages])
    finally:
        stage.close()
    assert patches.pool.used_pages() == visual.pool.used_pages() == 0


def test_a_placeholder_that_was_generated_is_a_token_like_any_other() -> None:
    placeholder = 9
    request = PrefillRequest(
        ticket=Ticket(1, 0.0),
        token_ids=[1, *[placeholder] * 4, 2, placeholder, 3],
        num_prompt=6,
        media=[video_plan((0, 1))],
        sampling=SamplingParams(),
        indices=[0],
    )
    units = PromptUnits.of(request, frozenset({placeholder}))
    assert [unit.position for unit in units.shapes(request.reuse)] == [1]
    assert units.rows == [0, 4]


def test_the_timeline_keeps_only_the_latest_work() -> None:
    timeline = Timeline(0.0)
    timeline.add(Span(Stage.DECODE, "decode", i, i + 1.0, [1]) for i in range(100_000))
    assert len(timeline.chrome_trace()["traceEvents"]) < 30_000
