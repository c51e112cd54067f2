"""A prompt that is too long says how many frames would not be: so many fit, and one more does not."""

from pathlib import Path

import pytest
from fitting_requests import LAYOUT, request

from unifiedserve.config import EngineConfig
from unifiedserve.engine.admission.admission import Admission
from unifiedserve.errors import RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.models.processor import Processor


def test_as_many_frames_as_it_says_fit(ours: Processor, sample_clip: Path) -> None:
    admission = Admission(EngineConfig.of(max_model_len=1000), ours, LAYOUT)
    with pytest.raises(RequestError, match=r"holds 1000 .* (\d+) frames a video fit") as refused:
        admission.admit(request(sample_clip, 5, num_frames=-1))
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")
    frames = int(refused.value.message.split(" frames a video")[0].split()[-1])
    assert len(admission.admit(request(sample_clip, 5, num_frames=frames)).prompt.token_ids) < 1000
    with pytest.raises(RequestError, match=f" {frames} frames a video fit"):
        admission.admit(request(sample_clip, 5, num_frames=frames + 1))
    admission.close()


def test_a_prompt_of_tokens_that_is_too_long_has_the_clients_name(ours: Processor) -> None:
    admission = Admission(EngineConfig.of(max_model_len=100), ours, LAYOUT)
    with pytest.raises(RequestError, match="has 100 tokens, media included; the context holds 100") as refused:
        admission.admit(GenerateRequest(id="x", prompt_token_ids=[5] * 100, prompt_param="prompt[1]"))
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt[1]")
    admission.close()


def test_where_even_one_frame_is_too_much(ours: Processor, sample_clip: Path) -> None:
    admission = Admission(EngineConfig.of(max_model_len=100), ours, LAYOUT)
    with pytest.raises(RequestError, match="not even one frame fits"):
        admission.admit(request(sample_clip, 200, num_frames=8))
    admission.close()
