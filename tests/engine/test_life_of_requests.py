"""Requests that share, stop, are cut off, run out of pages or lose a worker: nothing is lost and nothing leaks."""

import concurrent.futures
import itertools
import os
import signal
from collections.abc import Callable

import openai
import pytest
from completions import PLACEMENTS, SMALL_BUFFERS, TIGHT_BUFFERS, ask, metric, tokens
from daemon import Daemon
from media import Clip, image_part, make_image, text_part, video_part

from unifiedserve.placement import Stage

Clips = Callable[[int], Clip]

pytestmark = pytest.mark.daemon("requests in all stages of real workers at once")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_64_mixed_requests_complete_and_free_everything(daemon: Daemon, clips: Clips, placement: str) -> None:
    parts = [
        [text_part("What is a river?")],
        [image_part(make_image(1, 150, 200)), text_part("What is this?")],
        [video_part(clips(8)), text_part("What happens?")],
        [video_part(clips(64)), image_part(make_image(2, 60, 90)), text_part("Compare.")],
    ]
    mixed = list(itertools.islice(itertools.cycle(parts), 64))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda content: tokens(daemon, *content), mixed))
    assert all(answers)
    assert answers == answers[:4] * 16
    daemon.wait_idle()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_client_that_leaves_frees_everything(daemon: Daemon, clips: Clips, placement: str) -> None:
    aborted = metric(daemon, "num_aborted_requests_total")
    for content in ([text_part("Tell me a story.")], [video_part(clips(64)), text_part("What happens?")]):
        stream = ask(daemon, *content, stream=True, max_tokens=6000, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    daemon.wait_idle()
    assert metric(daemon, "num_aborted_requests_total") == aborted + 2


@pytest.mark.second_daemon(**TIGHT_BUFFERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_preempted_requests_give_the_same_answers(
    daemon: Daemon, second_daemon: Daemon, clips: Clips, placement: str
) -> None:
    def questions(daemon: Daemon) -> list[Callable[[], list[int]]]:
        options = {"max_tokens": 200, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
        video = [video_part(clips(8)), text_part("What happens?")]
        return [
            lambda: tokens(daemon, text_part("What is a river?"), **options),
            lambda: tokens(daemon, text_part("Tell me a story."), **options, seed=1),
            lambda: tokens(daemon, text_part("Sing."), **options | {"temperature": 1.0, "seed": 7}),
            lambda: tokens(daemon, *video, **options),
        ]

    expected = [question() for question in questions(daemon)]
    before = metric(second_daemon, "num_preemptions_total")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(question) for question in questions(second_daemon)]
        assert [future.result() for future in futures] == expected
    assert metric(second_daemon, "num_preemptions_total") > before
    second_daemon.wait_idle()


@pytest.mark.parametrize(
    ("instance", "dual_streams"),
    [("vision", "auto"), ("encode-prefill", "auto"), ("decode", "auto"), ("encode-prefill", "on")],
)
def test_a_killed_worker_loses_no_request(daemon: Daemon, clips: Clips, instance: str, dual_streams: str) -> None:
    options = {"max_tokens": 300, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
    video = [video_part(clips(64)), text_part("What happens?")]
    expected = [tokens(daemon, text_part("What is a river?"), **options), tokens(daemon, *video, **options)]
    stream = ask(daemon, text_part("What is a river?"), stream=True, **options)
    chunks, seen = iter(stream), daemon.engine.observation
    first = next(chunks)
    got, pids = list(first.choices[0].token_ids or ()), seen.worker_pids()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(tokens, daemon, *video, **options)
        os.kill(pids[instance], signal.SIGKILL)
        got += [token for chunk in chunks for token in chunk.choices[0].token_ids or ()]
        assert got == expected[0]
        assert other.result() == expected[1]
    daemon.wait_for(lambda: seen.worker_pids().get(instance) not in (None, pids[instance]))
    daemon.wait_healthy()
    assert {name for name, pid in seen.worker_pids().items() if pid != pids[name]} == {instance}
    assert [span.name for span in seen.timeline(first.id) if span.stage is Stage.PREFILL].count("prefill") == 1
    daemon.wait_idle()


@pytest.mark.second_daemon(placement="monolithic")
def test_sampling_with_a_seed_is_the_same_everywhere(daemon: Daemon, second_daemon: Daemon) -> None:
    answers = []
    for each in (daemon, second_daemon):
        for _ in range(2):
            completion = ask(each, text_part("Tell me a story."), temperature=1.2, top_p=0.95, seed=11, n=3)
            answers.append([choice.token_ids for choice in completion.choices])
        each.wait_idle()
    assert answers == answers[:1] * 4
    assert len({tuple(answer) for answer in answers[0]}) == 3


def test_stop_string_ends_an_answer_before_it(daemon: Daemon) -> None:
    whole = ask(daemon, text_part("What is a river?")).choices[0].message.content
    stop = whole.split()[5]
    choice = ask(daemon, text_part("What is a river?"), stop=stop).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.content == whole[: whole.index(stop)]
    daemon.wait_idle()


def test_logprobs_are_those_of_the_tokens(daemon: Daemon) -> None:
    choice = ask(daemon, text_part("What is a river?"), logprobs=True, top_logprobs=5).choices[0]
    assert len(choice.logprobs.content) == len(choice.token_ids)
    for entry in choice.logprobs.content:
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)
        assert len(entry.top_logprobs) == 5


@pytest.mark.daemon(**SMALL_BUFFERS)
def test_videos_larger_than_buffers_have_the_same_answers(
    daemon: Daemon, serve: Callable[..., Daemon], clips: Clips
) -> None:
    """Six at once, four of which go through windows of both buffers, and one that is aborted in the middle."""
    every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}, "return_token_ids": True}
    large = [video_part(clips(64)), text_part("What happens?")]
    asked = [large, [video_part(clips(8)), text_part("What?")], large, [text_part("What is a river?")], large, large]

    def answers(of: Daemon) -> list[list[int]]:
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(lambda content: tokens(of, *content, extra_body=every_frame), asked))

    gone = ask(daemon, *large, stream=True, max_tokens=100, extra_body={**every_frame, "ignore_eos": True})
    gone.close()
    assert answers(daemon) == answers(serve())
    daemon.wait_idle()


@pytest.mark.daemon(**SMALL_BUFFERS)
def test_requests_that_do_not_fit_a_buffer_are_refused_with_the_numbers(daemon: Daemon, clips: Clips) -> None:
    with pytest.raises(openai.BadRequestError, match=r"KV cache .* which has \d+.*--kv-cache-mib"):
        ask(daemon, text_part("Hello"), max_tokens=5000)
    with pytest.raises(openai.BadRequestError, match=r"KV cache .* which has \d+.*--kv-cache-mib"):
        ask(daemon, video_part(clips(64)), text_part("Hi"), max_tokens=5000)
    with pytest.raises(openai.BadRequestError, match="the context holds"):
        ask(daemon, text_part("word " * 40000))
    assert tokens(daemon, text_part("Still there?"))
    daemon.wait_idle()
