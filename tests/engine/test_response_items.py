"""/v1/responses over a real daemon: the same answers as chats have."""

from collections.abc import Callable

import pytest
from completions import ask
from daemon import Daemon
from media import Clip, image_part, make_image, text_part, video_part


@pytest.mark.daemon("the answers of a real model, by two APIs")
def test_answers_are_those_of_chats(daemon: Daemon, clips: Callable[[int], Clip]) -> None:
    image, video, text = image_part(make_image(4, 60, 90)), video_part(clips(8)), text_part("Compare.")
    expected = ask(daemon, image, video, text)
    content = [
        {"type": "input_image", "image_url": image["image_url"]["url"]},
        {"type": "input_video", "video_url": video["video_url"]["url"]},
        {"type": "input_text", "text": "Compare."},
    ]
    options = {
        "model": daemon.engine.model_name,
        "input": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_output_tokens": 16,
    }
    whole = daemon.client.responses.create(**options)
    *_, last = daemon.client.responses.create(**options, stream=True)
    for response in (whole, last.response):
        assert response.output_text == expected.choices[0].message.content
        assert response.usage.input_tokens == expected.usage.prompt_tokens
    daemon.wait_idle()
