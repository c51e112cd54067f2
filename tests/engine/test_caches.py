"""What was computed before is not computed again, and answers stay what they were."""

import asyncio
import concurrent.futures
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cache_hits import LONG, Hits, work
from completions import KEEPS_NOTHING, PLACEMENTS, SHARED_FIRST, TIGHT_BUFFERS, ask, metric, tokens
from daemon import Daemon
from media import Clip, image_part, make_image, text_part, video_part
from questions import NAMES, PIECES, answer, expected_answers, question
from reference import Reference

from unifiedserve.engine.caches import Caches, Known
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.pages import Pages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Reuse
from unifiedserve.placement import FIRST_MEMORY, Stage

Clips = Callable[[int], Clip]

pytestmark = pytest.mark.daemon("caches of real workers, which the engine keeps the index of")

VIDEO = 62  # frames: a file that no other test asks about
EVERY_FRAME = {"media_io_kwargs": {"video": {"num_frames": -1}}, "return_token_ids": True}
QUESTIONS = ["What happens?", "Who is there?"]


def chat(daemon: Daemon, messages: list[dict[str, Any]], **options: Any) -> Any:
    return daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=messages,  # type: ignore[arg-type]
        **{"temperature": 0, "max_tokens": 16, "extra_body": EVERY_FRAME, **options},
    )


def video_after(system: str, clips: Clips) -> list[dict[str, Any]]:
    user = [video_part(clips(VIDEO)), image_part(make_image(1, 60, 90)), text_part("What happens?")]
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def talk(daemon: Daemon) -> list[tuple[list[int], int]]:
    """Three turns of a conversation: the answers' tokens, and the length of each prompt."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [image_part(make_image(1, 150, 200))]}]
    turns = []
    for text in (LONG, "And then?", "Why?"):
        messages.append({"role": "user", "content": text})
        completion = chat(daemon, messages, max_tokens=40)
        turns.append((completion.choices[0].token_ids, completion.usage.prompt_tokens))
        messages.append({"role": "assistant", "content": completion.choices[0].message.content})
    return turns


def three_answers(daemon: Daemon) -> list[list[int]]:
    completion = ask(daemon, text_part(LONG), n=3, temperature=1.2, seed=11, max_tokens=40)
    return [choice.token_ids for choice in completion.choices]


def crowd(clips: Clips) -> list[list[dict[str, Any]]]:
    return [
        [text_part("What is a river?")],
        [text_part("Sing.")],
        [video_part(clips(8)), text_part("What happens?")],
        [video_part(clips(8)), text_part("Who is there?")],
    ]


CROWD: dict[str, Any] = {"max_tokens": 200, "extra_body": {"return_token_ids": True, "ignore_eos": True}}


@pytest.fixture(scope="session")
def uncached(once_a_run: Callable[..., Any], serve: Callable[..., Daemon], clips: Clips) -> dict[str, Any]:
    """The answers of an engine that keeps nothing."""

    def ask_all() -> dict[str, Any]:
        daemon = serve(**KEEPS_NOTHING)
        hits = Hits(daemon)
        video = video_part(clips(VIDEO))
        answers = {
            "questions": [tokens(daemon, video, text_part(q), extra_body=EVERY_FRAME) for q in QUESTIONS],
            "after": chat(daemon, video_after("Be brief.", clips)).choices[0].token_ids,
            "talk": talk(daemon),
            "three": three_answers(daemon),
            "crowd": [tokens(daemon, *content, **CROWD) for content in crowd(clips)],
        }
        daemon.wait_idle()
        assert set(daemon.engine.observation.cached().values()) == {0}
        assert hits.take() == {}
        return answers

    return once_a_run("answers of an engine that keeps nothing", ask_all)  # type: ignore[no-any-return]


@pytest.mark.daemon(**PIECES)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_answers_equal_generate_whatever_is_cached(
    daemon: Daemon, once_a_run: Callable[..., Any], clips: Clips, hf: Reference, placement: str
) -> None:
    expected = expected_answers(once_a_run, hf, clips)
    hits = Hits(daemon)
    for _ in range(2):
        assert {name: answer(daemon, question(name, clips)) for name in NAMES} == expected
    daemon.wait_idle()
    found = hits.take()
    assert found["queries"] // 2 - len(NAMES) * 8 <= found["hits"] < found["queries"]
    with concurrent.futures.ThreadPoolExecutor(len(NAMES)) as pool:
        assert list(pool.map(lambda name: answer(daemon, question(name, clips)), NAMES)) == list(expected.values())
    daemon.wait_idle()


@pytest.mark.fresh_daemon
@pytest.mark.parametrize("placement", SHARED_FIRST)
def test_each_cache_saves_its_share(uncached: dict[str, Any], daemon: Daemon, clips: Clips, placement: str) -> None:
    hits = Hits(daemon)
    asked = [ask(daemon, video_part(clips(VIDEO)), text_part(q), extra_body=EVERY_FRAME) for q in QUESTIONS]
    daemon.wait_idle()
    assert [completion.choices[0].token_ids for completion in asked] == uncached["questions"]
    cached = [completion.usage.prompt_tokens_details.cached_tokens for completion in asked]
    assert cached[0] == 0
    prompts = [completion.usage.prompt_tokens for completion in asked]
    found = hits.take()
    assert found["queries"] == sum(prompts)
    assert prompts[1] - 40 < found["hits"] == cached[1] < prompts[1]
    assert daemon.engine.observation.cached()[FIRST_MEMORY, "kv"] > 0
    assert work(daemon, asked[0]).keys() == set(Stage)
    assert work(daemon, asked[1]).keys() == {Stage.PREFILL, Stage.DECODE}, "the prefix holds the video"

    after = chat(daemon, video_after("Be brief.", clips))
    daemon.wait_idle()
    found = hits.take()
    assert after.choices[0].token_ids == uncached["after"]
    assert 0 < found["visual hits"] < found["visual queries"], "the video was there, the image was not"
    again = chat(daemon, video_after("Be verbose.", clips))
    daemon.wait_idle()
    found = hits.take()
    assert work(daemon, again).keys() == {Stage.PREFILL, Stage.DECODE}, "the visual cache holds the media"
    assert found["visual hits"] == found["visual queries"]
    assert found.get("hits", 0) < 32, "no more than what comes before the system prompt"

    assert talk(daemon) == uncached["talk"]
    daemon.wait_idle()
    assert hits.take()["hits"] >= sum(prompt - 16 for _, prompt in uncached["talk"][:2])
    assert [three_answers(daemon) for _ in range(3)] == [uncached["three"]] * 3
    daemon.wait_idle()
    assert hits.take()["hits"] > 0


@pytest.mark.daemon(visual_cache_mib=0, kv_cache_mib=2)
def test_a_video_of_which_a_part_is_cached_is_decoded_for_the_rest(
    uncached: dict[str, Any], daemon: Daemon, clips: Clips
) -> None:
    """A prompt's pages are evicted from its end; what is then missing of the video is computed again."""
    video = [video_part(clips(VIDEO)), text_part(QUESTIONS[0])]
    first = ask(daemon, *video, extra_body=EVERY_FRAME)
    daemon.wait_idle()
    seen, kv = daemon.engine.observation, (FIRST_MEMORY, "kv")
    total, cached = seen.buffers()[kv][1], seen.cached()[kv]
    others = (total - cached // 2) * daemon.engine.config.memory.kv_page_tokens
    ask(daemon, text_part("word"), max_tokens=others - 60, extra_body={"ignore_eos": True})
    hits = Hits(daemon)
    second = ask(daemon, *video, extra_body=EVERY_FRAME)
    daemon.wait_idle()
    assert [first.choices[0].token_ids, second.choices[0].token_ids] == uncached["questions"][:1] * 2
    assert 100 < hits.take()["hits"] < second.usage.prompt_tokens - 100
    assert 0 < work(daemon, second)[Stage.VISION] < work(daemon, first)[Stage.VISION]


def test_generated_pages_are_reused_too(daemon: Daemon) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    prompt = list(range(500, 550))

    async def generate(token_ids: list[int]) -> list[int]:
        request = GenerateRequest(id=uuid.uuid4().hex, prompt_token_ids=token_ids, sampling=sampling)
        return [token async for delta in daemon.engine.generate(request) for token in delta.token_ids]

    def run(token_ids: list[int]) -> list[int]:
        return asyncio.run_coroutine_threadsafe(generate(token_ids), daemon.loop).result()

    answer = run(prompt)
    daemon.wait_idle()
    hits = Hits(daemon)
    run(prompt + answer + [7])
    daemon.wait_idle()
    assert hits.take() == {"queries": 151, "hits": 149 // 16 * 16}


@pytest.mark.daemon(**TIGHT_BUFFERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_full_cache_makes_nobody_wait(daemon: Daemon, placement: str) -> None:
    """Prompts that fill the KV cache several times over, one after the other: what is cached makes room at once."""
    before = metric(daemon, "num_preemptions_total")
    plain = [text_part(f"{number}. {LONG}") for number in range(12)]
    answers = [tokens(daemon, part) for part in plain]
    daemon.wait_idle()
    _, total = daemon.engine.observation.buffers()[FIRST_MEMORY, "kv"]
    assert daemon.engine.observation.cached()[FIRST_MEMORY, "kv"] > total // 2
    longest = {"max_tokens": None, "extra_body": {"ignore_eos": True}}
    completion = ask(daemon, text_part("Hello"), **longest)
    assert completion.usage.total_tokens == total * daemon.engine.config.memory.kv_page_tokens + 1
    assert metric(daemon, "num_preemptions_total") == before
    assert [tokens(daemon, part) for part in plain] == answers
    daemon.wait_idle()


@pytest.mark.daemon(**TIGHT_BUFFERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_preempted_requests_go_on_from_what_is_cached(
    uncached: dict[str, Any], daemon: Daemon, clips: Clips, placement: str
) -> None:
    hits, before = Hits(daemon), metric(daemon, "num_preemptions_total")
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda content: tokens(daemon, *content, **CROWD), crowd(clips)))
        assert answers == uncached["crowd"]
    assert metric(daemon, "num_preemptions_total") > before
    assert hits.take()["hits"] > 0
    daemon.wait_idle()


@pytest.mark.parametrize("instance", ["encode-prefill", "decode"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_the_caches_outlive_a_worker(daemon: Daemon, clips: Clips, instance: str, how: signal.Signals) -> None:
    video = [video_part(clips(8)), text_part("What happens?")]
    expected = tokens(daemon, *video, extra_body=EVERY_FRAME)
    daemon.wait_idle()
    cached = daemon.engine.observation.cached()
    assert cached[FIRST_MEMORY, "kv"] > 0
    os.kill(daemon.engine.observation.worker_pids()[instance], how)
    daemon.wait_healthy(False)
    daemon.wait_healthy()
    assert daemon.engine.observation.cached() == cached
    again = [ask(daemon, *video, extra_body=EVERY_FRAME) for _ in range(2)]
    assert [completion.choices[0].token_ids for completion in again] == [expected] * 2
    daemon.wait_idle()
    assert [Stage.VISION in work(daemon, completion) for completion in again] == [False, False]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_request_goes_on_from_its_pages_when_a_worker_has_died(
    daemon: Daemon, clips: Clips, how: signal.Signals
) -> None:
    """Nothing is computed again; after a fault what it had not filled pages with is, but its video is not decoded."""
    video = [video_part(clips(VIDEO)), text_part("What happens then?")]
    endless = {**EVERY_FRAME, "ignore_eos": True}
    expected = ask(daemon, *video, max_tokens=500, extra_body=endless)
    daemon.wait_idle()
    chunks = iter(ask(daemon, *video, max_tokens=2000, stream=True, extra_body=endless))  # no busy machine sees the end
    said = [next(chunks) for _ in range(4)]
    hits = Hits(daemon)
    os.kill(daemon.engine.observation.worker_pids()["decode"], how)
    said += chunks
    told = [token for chunk in said for choice in chunk.choices for token in choice.token_ids or ()]
    assert (len(told), told[:500]) == (2000, expected.choices[0].token_ids)
    found = hits.take()
    assert found == {} if how == signal.SIGKILL else found["hits"] > expected.usage.prompt_tokens // 2
    daemon.wait_idle()


def test_what_a_dead_worker_had_not_read_is_handed_to_the_next(daemon: Daemon, clips: Clips) -> None:
    video = [video_part(clips(VIDEO)), text_part("What happened then?")]
    asked: dict[str, Any] = {"max_tokens": 50, "extra_body": {**EVERY_FRAME, "ignore_eos": True}}
    expected = ask(daemon, *video, **asked)
    daemon.wait_idle()
    decode = daemon.engine.observation.worker_pids()["decode"]
    os.kill(decode, signal.SIGSTOP)
    chunks = iter(ask(daemon, *video, stream=True, **asked))
    said = [next(chunks)]
    while not said[-1].choices[0].delta.content:
        said.append(next(chunks))
    hits = Hits(daemon)
    os.kill(decode, signal.SIGKILL)
    said += chunks
    assert "".join(choice.delta.content or "" for chunk in said for choice in chunk.choices) == (
        expected.choices[0].message.content
    )
    assert hits.take() == {}
    daemon.wait_idle()


def test_an_answer_that_ends_as_it_is_handed_to_a_dead_worker_leaves_no_page(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hears of the death first, then of the only token, and then that all is handed over."""
    said = ask(daemon, text_part("Sing.")).choices[0].message.content
    daemon.wait_idle()
    pids, heard, bear_anew = daemon.engine.observation.worker_pids(), threading.Event(), SharedMemory.bear_anew

    def once_all_is_handed_over(memory: SharedMemory, instance: str) -> int:
        heard.set()
        while not memory.inboxes[instance].pending():
            os.sched_yield()
        return bear_anew(memory, instance)

    monkeypatch.setattr(SharedMemory, "bear_anew", once_all_is_handed_over)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        os.kill(pids["encode-prefill"], signal.SIGSTOP)
        answer = pool.submit(ask, daemon, text_part("Sing."), stop=[said[0]])
        daemon.wait_for(lambda: daemon.engine.observation.in_flight > 0)
        os.kill(pids["decode"], signal.SIGKILL)
        heard.wait()
        os.kill(pids["encode-prefill"], signal.SIGCONT)
        assert answer.result().choices[0].finish_reason == "stop"
    daemon.wait_healthy()
    daemon.wait_idle()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes the pages that the index finds in a cache look as if they had been taken since."""
    look_up = Caches.look_up
    lost: list[str] = []

    def find_what_is_gone(*args: Any, **named: Any) -> Known:
        known = look_up(*args, **named)
        found = known.reuse
        gone = lambda pages: Pages(pages.numbers, tuple(epoch - 1 for epoch in pages.epochs))  # noqa: E731
        prefix = gone(found.prefix) if "prefix" in lost else found.prefix
        units = {unit: gone(pages) for unit, pages in found.units.items()} if "units" in lost else found.units
        return known._replace(reuse=Reuse(prefix=prefix, covered=found.covered, units=units))

    monkeypatch.setattr(Caches, "look_up", find_what_is_gone)
    return lost.append  # type: ignore[return-value]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("gone", ["prefix", pytest.param("units", marks=pytest.mark.daemon(no_prefix_cache=True))])
def test_what_is_gone_when_its_turn_comes_is_computed(
    daemon: Daemon, clips: Clips, forgetful: Callable[[str], None], gone: str, placement: str
) -> None:
    video = [video_part(clips(VIDEO)), text_part("What happens?")]
    for options in ({}, {"n": 2}):
        expected = [choice.token_ids for choice in ask(daemon, *video, extra_body=EVERY_FRAME, **options).choices]
        forgetful(gone)
        again = ask(daemon, *video, extra_body=EVERY_FRAME, **options)
        assert [choice.token_ids for choice in again.choices] == expected
        assert work(daemon, again).keys() == set(Stage)
    daemon.wait_idle()
