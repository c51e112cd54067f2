"""The page at `/` in a real browser: upload, ask, the streamed answer, the stages at work, stop, errors in plain words.

UNIFIEDSERVE_SCREENSHOTS names a folder for pictures of it to look at.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from completions import BUNDLED
from daemon import KEY, Daemon
from media import make_image
from PIL import Image
from wire import Wire, wire_to

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
QUESTION = "What is the person doing?"
LONG = "6000"  # tokens

Take = Callable[[Any, str], None]

pytestmark = pytest.mark.daemon(
    "the page shows a real engine at work", compare=True, max_model_len=8192, max_media_mib=2
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium")
    playwright.expect.set_options(timeout=60_000)  # ms: all takes as long as the machine is slow
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def wire(daemon: Daemon) -> Iterator[Wire]:
    with wire_to(httpx.URL(daemon.url).port or 0) as wire:
        yield wire


@pytest.fixture
def page(browser: Any, daemon: Daemon, wire: Wire) -> Iterator[Any]:
    """The page, connected; it must not have complained, nor asked anybody else, when the test is over."""
    page = browser.new_page(viewport={"width": 1360, "height": 900})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    origin = f"http://127.0.0.1:{wire.port}"
    local = (origin, "data:", "blob:")
    page.on("request", lambda sent: None if sent.url.startswith(local) else complaints.append(sent.url))
    page.goto(origin)
    playwright.expect(page.get_by_text("live", exact=True)).to_be_visible()
    yield page
    page.close()
    daemon.wait_idle()
    assert complaints == []


@pytest.fixture
def take() -> Take:
    """Takes a picture of a page, if there is a folder for it."""
    folder = os.environ.get("UNIFIEDSERVE_SCREENSHOTS")

    def picture(page: Any, name: str) -> None:
        if folder:
            page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)

    return picture


def ask(page: Any, question: str, *, frames: int | None = None, tokens: str = "24") -> Any:
    """Sends a question about what was chosen; returns its card among the answers."""
    page.get_by_label("Frames").fill(str(frames or ""))
    page.get_by_label("Tokens").fill(tokens)
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask").click()
    return page.get_by_role("listitem").filter(has=page.get_by_role("button", name=question, exact=True)).first


def choose_sample(page: Any) -> None:
    page.get_by_role("button", name="Sample: telescope.mp4").click()
    playwright.expect(page.get_by_text("uploaded", exact=True)).to_be_visible()


def drop(page: Any, name: str, type: str, data: list[int]) -> None:
    transfer = page.evaluate_handle(
        """([name, type, data]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(data)], name, {type}));
            return transfer;
        }""",
        [name, type, data],
    )
    page.locator("#drop").dispatch_event("drop", {"dataTransfer": transfer})


def done(card: Any) -> None:
    playwright.expect(card.get_by_text(re.compile("^done"))).to_be_visible()


def test_a_question_about_a_sample(page: Any, daemon: Daemon, sample_clip: Path, take: Take) -> None:
    take(page, "empty")
    playwright.expect(page.locator("#workers")).to_have_text("Workers: vision, encode-prefill, decode.")
    choose_sample(page)
    card = ask(page, QUESTION, frames=16)
    done(card)
    assert card.locator(".answer").inner_text() == daemon.answer(sample_clip, QUESTION, frames=16, max_tokens=24)
    playwright.expect(page.get_by_role("img", name=re.compile(r"Frame at \d"))).to_have_count(16)
    playwright.expect(page.get_by_text("16 of 16 frames")).to_be_visible()
    seen = re.compile(r"\d+×\d+ seen as \d+×\d+, \d+ tokens, \d+ of \d+ packets to decode")
    playwright.expect(page.get_by_text(seen)).to_be_visible()
    for stage in ("Vision 1", "Encode", "Prefill", "Decode"):
        playwright.expect(page.get_by_role("row", name=re.compile(rf"^{stage} \d"))).to_be_visible()
    playwright.expect(page.get_by_text("TTFT in this browser")).to_be_visible()
    for figure in page.locator(".figures dd").all():
        assert float(figure.inner_text().split()[0]) > 0
    for theme in ("light", "dark"):
        page.get_by_role("button", name="Theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        take(page, theme)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390, "nothing is cut off on a phone"
    take(page, "phone")

    again = ask(page, "And what is behind?", frames=16)
    done(again)
    playwright.expect(page.get_by_text("16 of 16 frames")).to_be_visible()


def test_an_image_is_uploaded_and_answered(page: Any, tmp_path: Path) -> None:
    Image.fromarray(make_image(3, 90, 120)).save(tmp_path / "wave.png")
    page.get_by_label("Choose a video or an image").set_input_files(tmp_path / "wave.png")
    playwright.expect(page.get_by_role("img", name="wave.png")).to_be_visible()
    done(ask(page, "What is this?"))
    playwright.expect(page.get_by_role("img", name="The image")).to_have_count(1)


def test_a_file_is_dropped(page: Any, sample_clip: Path) -> None:
    drop(page, "dropped.mp4", "video/mp4", list(sample_clip.read_bytes()))
    playwright.expect(page.get_by_text("dropped.mp4")).to_be_visible()
    done(ask(page, QUESTION, frames=4))


@pytest.mark.parametrize(("name", "type"), [("notes.pdf", "application/pdf"), ("song.mp3", "audio/mpeg")])
def test_a_file_that_is_no_medium_is_refused_when_it_is_dropped(page: Any, name: str, type: str) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    drop(page, name, type, [1, 2, 3])
    playwright.expect(page.get_by_role("alert")).to_contain_text(f"{name} is neither a video nor an image")
    playwright.expect(page.get_by_text("Choose a video or an image")).to_be_visible()
    assert sent == []


def test_several_questions_at_once_and_stop(page: Any, daemon: Daemon, take: Take) -> None:
    choose_sample(page)
    cards = [ask(page, f"Question {number}?", frames=4, tokens=LONG if number else "4") for number in range(3)]
    done(cards[0])
    for card in cards[1:]:
        playwright.expect(card.locator(".answer")).not_to_be_empty()
    take(page, "parallel")
    for card in cards[1:]:
        card.get_by_role("button", name="Stop").click()
        playwright.expect(card.get_by_text("stopped")).to_be_visible()
    daemon.wait_idle()


def test_a_question_without_media(page: Any) -> None:
    page.get_by_role("button", name="Ask").click()
    playwright.expect(page.get_by_text("Write a question first.")).to_be_visible()
    card = ask(page, "What is a river?")
    playwright.expect(page.get_by_text("the model answers from the text alone")).to_be_visible()
    done(card)


def test_what_is_no_video_is_said_in_the_servers_words(page: Any, tmp_path: Path, take: Take) -> None:
    (tmp_path / "notes.mp4").write_text("not a video")
    page.get_by_label("Choose a video or an image").set_input_files(tmp_path / "notes.mp4")
    card = ask(page, "What happens?")
    playwright.expect(card.get_by_role("alert")).to_contain_text("video 1: ")
    take(page, "error")


def test_a_file_above_the_limit_is_not_even_sent(page: Any, tmp_path: Path) -> None:
    with (tmp_path / "large.mp4").open("wb") as file:
        file.truncate((2 << 20) + 1)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_label("Choose a video or an image").set_input_files(tmp_path / "large.mp4")
    playwright.expect(page.get_by_role("alert")).to_contain_text("this server takes at most 2.0 MiB")
    assert sent == []


def test_more_frames_than_the_context_holds(page: Any) -> None:
    choose_sample(page)
    card = ask(page, QUESTION, frames=1000)
    playwright.expect(card.get_by_role("alert")).to_contain_text(re.compile(r"\d+ frames a video fit"))
    frames = re.search(r"(\d+) frames a video fit", card.get_by_role("alert").inner_text())
    assert frames
    done(ask(page, QUESTION, frames=int(frames[1]), tokens="1"))


def test_a_connection_that_is_lost_in_the_middle(page: Any, wire: Wire) -> None:
    choose_sample(page)
    card = ask(page, QUESTION, frames=4, tokens=LONG)
    playwright.expect(card.locator(".answer")).not_to_be_empty()
    wire.cut()
    playwright.expect(card.get_by_role("alert")).to_contain_text("The connection was lost in the middle of the answer")
    playwright.expect(page.get_by_text("not connected")).to_be_visible()
    playwright.expect(card.locator(".answer")).not_to_be_empty()
    wire.mend()
    playwright.expect(page.get_by_text("live", exact=True)).to_be_visible()
    done(ask(page, "And now?", frames=4))


def test_text_is_never_markup(page: Any) -> None:
    evil = "<img src=x onerror=alert(1)>"
    done(ask(page, evil))
    assert page.locator("#answers img").count() == 0


def test_the_snippets_do_the_same(page: Any, daemon: Daemon, sample_clip: Path, tmp_path: Path) -> None:
    shutil.copy(sample_clip, tmp_path)
    choose_sample(page)
    card = ask(page, 'What\'s 100% "$HOME"?', frames=8, tokens="8")
    done(card)
    answer = card.locator(".answer").inner_text()
    page.get_by_text("The same request with curl and Python").click()
    curl, python = (shown.inner_text() for shown in page.locator("pre").all())
    printed = subprocess.run([sys.executable, "-c", python], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == answer
    assert json.dumps('What\'s 100% "$HOME"?')[1:-1].replace("'", "'\\''") in curl
    if shutil.which("curl"):
        completion = subprocess.run(["bash", "-c", curl], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert json.loads(completion.stdout)["choices"][0]["message"]["content"].strip() == answer


def test_the_same_request_under_both_placements(page: Any, daemon: Daemon, sample_clip: Path, take: Take) -> None:
    choose_sample(page)
    page.get_by_label("run under monolithic").check()
    card = ask(page, QUESTION, frames=28)
    playwright.expect(card.get_by_text(re.compile("^done"))).to_have_count(2)
    answers = [answer.inner_text() for answer in card.locator(".answer").all()]
    assert answers == [daemon.answer(sample_clip, QUESTION, frames=28, max_tokens=24)] * 2
    live = page.get_by_role("region", name="Live")
    for placement in ("shared", "monolithic"):
        playwright.expect(live.get_by_role("heading", name=placement)).to_be_visible()
    playwright.expect(live.get_by_role("row", name=re.compile(r"^Encode \d"))).to_have_count(2)
    playwright.expect(live.get_by_text("longest pause of a stream beside")).to_have_count(2)
    take(page, "compare")


@pytest.mark.daemon(**BUNDLED, compare=False, max_model_len=0, max_media_mib=512)
def test_the_bundled_model_answers_right(browser: Any, daemon: Daemon, take: Take) -> None:
    """What a newcomer does first: choose the first sample, click on a question, and look."""
    page = browser.new_page(viewport={"width": 1360, "height": 900})
    page.goto(daemon.url)
    playwright.expect(page.get_by_text("knows drawn shapes only")).to_be_visible()
    page.get_by_role("button", name="Sample: ").first.click()
    page.locator("#suggestions").get_by_role("button").first.click()
    page.get_by_role("button", name="Ask").click()
    card = page.get_by_role("listitem")
    done(card)
    playwright.expect(card.locator(".answer")).to_have_text("The pink triangle appears.")
    take(page, "bundled")
    page.close()


@pytest.mark.daemon(**BUNDLED, compare=False, max_model_len=0, max_media_mib=512, api_key_file="keys")
def test_a_server_with_keys_asks_for_one(browser: Any, daemon: Daemon, take: Take) -> None:
    page = browser.new_page(viewport={"width": 1360, "height": 900})
    page.goto(daemon.url)
    page.get_by_label("Key").fill("sk-nobody-0123456789")
    take(page, "key")
    page.get_by_role("button", name="Use this key").click()
    playwright.expect(page.get_by_role("alert")).to_contain_text("does not know this key")
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    playwright.expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sample: shapes-events.mp4").click()
    playwright.expect(page.get_by_text("uploaded", exact=True)).to_be_visible()
    done(ask(page, "What is the last thing that happens?", frames=8))
    page.close()
