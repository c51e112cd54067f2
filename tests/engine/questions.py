"""Conversations as HTTP messages and as transformers' input, and the answers of both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daemon import Daemon
from media import FPS, Clip, image_part, make_image, text_part, video_part
from reference import Case, Reference

TOKENS = 24
NAMES = ["text", "1 image", "3 images", "8 frames", "9 frames", "64 frames", "image and video", "two turns", "sampled"]
PIECES: dict[str, Any] = {"prefill_chunk_tokens": 16, "kv_page_tokens": 8}

Clips = Callable[[int], Clip]


@dataclass
class Question:
    """The same conversation as HTTP messages and as transformers' input."""

    messages: list[dict[str, Any]]
    case: Case
    options: dict[str, Any]


def question(name: str, clips: Clips) -> Question:
    images = [make_image(1, 150, 200), make_image(2, 90, 300), make_image(3, 224, 56)]
    every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}}
    if name == "text":
        return ask(["What is a river?"], clips)
    if name == "1 image":
        return ask([images[0], "What is this?"], clips)
    if name == "3 images":
        return ask([images[0], "and", images[1], images[2], "Compare."], clips)
    if name == "image and video":
        return ask([images[1], clips(9), "Is the image in the video?"], clips, every_frame)
    if name == "two turns":
        turns = [images[0], "What is this?"], "A house by the sea.", ["And this?", images[2], clips(8)]
        return _conversation(list(turns), every_frame)
    if name == "sampled":
        sampling = ask([clips(64), "What happens?"], clips)
        sampling.case.sampling = {"do_sample_frames": True}
        return sampling
    return ask([clips(int(name.split()[0])), "What happens?"], clips, every_frame)


def ask(parts: list[Any], clips: Clips, options: dict[str, Any] | None = None) -> Question:
    return _conversation([parts], options)


def _conversation(turns: list[Any], options: dict[str, Any] | None = None) -> Question:
    messages: list[dict[str, Any]] = []
    case = Case([], fps=FPS)
    for turn in turns:
        role = "assistant" if isinstance(turn, str) else "user"
        parts = [turn] if isinstance(turn, str) else turn
        http, plain = [], []
        for part in parts:
            if isinstance(part, str):
                http.append(text_part(part))
                plain.append({"type": "text", "text": part})
            elif isinstance(part, Clip):
                http.append(video_part(part))
                plain.append({"type": "video"})
                case.videos.append(part.frames)
            else:
                http.append(image_part(part))
                plain.append({"type": "image"})
                case.images.append(part)
        messages.append({"role": role, "content": http})
        case.messages.append({"role": role, "content": plain})
    return Question(messages, case, options or {})


def expected_answers(once_a_run: Callable[..., Any], hf: Reference, clips: Clips) -> dict[str, list[int]]:
    """Return transformers' answer to each question."""

    def generate() -> dict[str, list[int]]:
        return {name: hf.generate(question(name, clips).case, TOKENS) for name in NAMES}

    return once_a_run("transformers' answers", generate)  # type: ignore[no-any-return]


def answer(daemon: Daemon, asked: Question) -> list[int]:
    completion = daemon.client.chat.completions.create(
        model=daemon.engine.model_name,
        messages=asked.messages,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=TOKENS,
        extra_body={"return_token_ids": True, **asked.options},
    )
    return completion.choices[0].token_ids  # type: ignore[attr-defined]
