"""Quantised weights through real workers: log probabilities of a prompt are close to transformers' for their values."""

import math
from typing import Any

import pytest
import reference
import torch
from checkpoints import find_checkpoint
from completions import ask
from daemon import Daemon
from media import image_part, make_image, text_part
from reference import Case, Reference, score

pytestmark = pytest.mark.daemon("codes from the files, or made of them, to the kernels of real workers")

IMAGE = make_image(5, 90, 120)
TEXT = text_part("What is this, and where does the river end? The boat goes under the bridge at night, slow and quiet.")


# Activations are rounded to 8 bits: that makes 0.18 to 0.24 of it. From the weights before they were quantised it is
# 0.35 with 8 bits and 2 with 4.
MOST = 0.3


def distance(answer: Any, hf: Reference) -> float:
    """Return the root mean square between the log probabilities of the prompt's tokens and transformers'."""
    inputs = hf.inputs(Case([{"role": "user", "content": [{"type": "image"}, TEXT]}], images=[IMAGE]))
    token_ids = inputs["input_ids"][0].tolist()
    ours = [
        entry[str(token)]["logprob"] for entry, token in zip(answer.prompt_logprobs[1:], token_ids[1:], strict=True)
    ]
    theirs = score(hf.model, inputs)[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]
    return math.sqrt(float((torch.tensor(ours) - theirs).square().mean()))


@pytest.mark.parametrize(
    ("model", "quantization", "values"),
    [
        ("gptq", "none", "gptq_values"),
        ("packed", "none", "packed_values"),
        ("tiny", "int8", "int8_values"),
        ("tiny", "int4", "int4_values"),
    ],
)
def test_prompts(
    daemon: Daemon, model: str, quantization: str, values: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    answer = ask(daemon, image_part(IMAGE), TEXT, extra_body={"prompt_logprobs": 0})
    assert distance(answer, reference.load(find_checkpoint(tmp_path_factory, values))) < MOST
    daemon.wait_idle()
