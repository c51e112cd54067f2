"""A folder without weights is served with random ones, by real workers, as any other."""

import math
from pathlib import Path

import pytest
from completions import PLACEMENTS, ask
from daemon import Daemon
from media import image_part, make_image, text_part

pytestmark = pytest.mark.daemon("weights that the supervisor makes up", model="without_weights", load_format="dummy")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_answers(daemon: Daemon, placement: str) -> None:
    assert not list(Path(daemon.engine.config.checkpoint.model).glob("*.safetensors"))
    question = image_part(make_image(3, 90, 120)), text_part("What is this?")
    first, again = (
        ask(daemon, *question, max_tokens=12, logprobs=True, extra_body={"ignore_eos": True}) for _ in range(2)
    )
    assert first.usage.completion_tokens == 12
    assert first.choices[0].message.content == again.choices[0].message.content
    assert all(math.isfinite(token.logprob) for token in first.choices[0].logprobs.content)
    daemon.wait_idle()
