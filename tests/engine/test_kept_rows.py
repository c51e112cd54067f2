"""Visual tokens that decode reads, too: they are paged, shared, given back and found again like keys and values."""

import concurrent.futures
import os
import signal
from collections.abc import Callable
from typing import Any

import openai
import pytest
import reference
from cache_hits import Hits, work
from checkpoints import find_checkpoint
from completions import SHARED_FIRST, ask, metric, tokens
from daemon import Daemon
from family_questions import KEPT_ROWS
from media import Clip, image_part, make_image, text_part, video_part
from questions import TOKENS, Question, answer
from questions import ask as question
from reference import Reference

from unifiedserve.placement import Stage

pytestmark = pytest.mark.daemon("rows that real workers share and give back", **KEPT_ROWS)
Clips = Callable[[int], Clip]

IMAGES = [make_image(1, 150, 200), make_image(2, 90, 300), make_image(3, 224, 56)]
LONG: dict[str, Any] = {"max_tokens": 400, "extra_body": {"return_token_ids": True, "ignore_eos": True}}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference.load(find_checkpoint(tmp_path_factory, "mllama"))


def crowd(daemon: Daemon) -> list[list[list[int]]]:
    """Seven requests at once, one of them with two answers: together they need more of both buffers than small ones
    have."""
    singles = [([image_part(make_image(seed, 60, 90)), text_part("What is this?")], LONG) for seed in range(5)]
    album = [*map(image_part, IMAGES), text_part("Compare.")]
    asked = [*singles, (album, {**LONG, "n": 2, "temperature": 1.0, "seed": 5}), ([text_part("Sing.")], LONG)]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        completions = pool.map(lambda each: ask(daemon, *each[0], **each[1]), asked)
        return [[choice.token_ids for choice in completion.choices] for completion in completions]


@pytest.fixture(scope="module")
def expected(once_a_run: Callable[..., Any], serve: Callable[..., Daemon]) -> list[list[list[int]]]:
    def roomy() -> list[list[list[int]]]:
        daemon = serve(**KEPT_ROWS)
        before = metric(daemon, "num_preemptions_total")
        answers = crowd(daemon)
        assert metric(daemon, "num_preemptions_total") == before
        daemon.wait_idle()
        return answers

    return once_a_run("kept rows of a crowd", roomy)  # type: ignore[no-any-return]


@pytest.mark.daemon(
    kv_cache_mib=1,
    visual_buffer_mib=1,
    visual_page_tokens=256,
    visual_cache_mib=0,
    kv_page_tokens=16,
    prefill_chunk_tokens=512,
)
@pytest.mark.parametrize("placement", SHARED_FIRST)
def test_small_buffers_make_requests_wait_and_nothing_else(
    daemon: Daemon, expected: list[list[list[int]]], clips: Clips, placement: str
) -> None:
    assert crowd(daemon) == expected
    assert metric(daemon, "num_preemptions_total") > 0
    daemon.wait_idle()
    with pytest.raises(
        openai.BadRequestError, match=r"needs 9 pages of the visual buffer \(612 .*has 8: .*--visual-buf"
    ):
        ask(daemon, *[image_part(IMAGES[0])] * 9)
    with pytest.raises(openai.BadRequestError, match="does not take videos"):
        ask(daemon, video_part(clips(8)), text_part("What happens?"))
    stream = ask(daemon, image_part(IMAGES[0]), text_part("Tell me a story."), stream=True, **LONG)
    next(iter(stream))
    stream.close()
    ask(daemon, image_part(IMAGES[0]), text_part("Say a word."), n=2, max_tokens=1)
    daemon.wait_idle()


def test_what_is_cached_depends_on_all_images(daemon: Daemon, clips: Clips, theirs: Reference) -> None:
    """The same words with other images are another prompt, from the first token on."""
    hits = Hits(daemon)
    asked = [question([IMAGES[0], "Is it the same as", image, "?"], clips) for image in IMAGES]
    wanted = [theirs.generate(each.case, TOKENS) for each in asked]
    assert [answer(daemon, each) for each in asked] == wanted
    daemon.wait_idle()
    assert "hits" not in hits.take()
    assert [answer(daemon, each) for each in asked] == wanted
    daemon.wait_idle()
    found = hits.take()
    assert found["hits"] >= found["queries"] - 4 * len(asked)
    assert found["visual hits"] == found["visual queries"]
    longer = Question(*_with_turn(asked[0], "Yes.", "Why?"), {})
    assert answer(daemon, longer) == theirs.generate(longer.case, TOKENS)
    daemon.wait_idle()
    assert hits.take()["hits"] > 16


def _with_turn(asked: Question, said: str, text: str) -> tuple[list[dict[str, Any]], reference.Case]:
    turns = [{"role": "assistant", "content": said}, {"role": "user", "content": text}]
    return [*asked.messages, *turns], reference.Case([*asked.case.messages, *turns], asked.case.images)


def test_a_repeated_image_is_not_encoded_again(daemon: Daemon) -> None:
    first, second = (ask(daemon, image_part(make_image(9, 70, 150)), text_part(text)) for text in ("Who?", "Where?"))
    daemon.wait_idle()
    assert work(daemon, first).keys() == set(Stage)
    assert work(daemon, second).keys() == {Stage.PREFILL, Stage.DECODE}


def test_a_killed_worker_loses_no_request(daemon: Daemon) -> None:
    picture = [image_part(IMAGES[1]), text_part("What is this?")]
    whole = tokens(daemon, *picture, **LONG)
    chunks = iter(ask(daemon, *picture, stream=True, **LONG))
    got = list(next(chunks).choices[0].token_ids or ())
    os.kill(daemon.engine.observation.worker_pids()["decode"], signal.SIGKILL)
    got += [token for chunk in chunks for token in chunk.choices[0].token_ids or ()]
    assert got == whole
    daemon.wait_idle()
