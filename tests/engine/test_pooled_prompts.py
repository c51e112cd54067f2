"""Embeddings are transformers' own hidden states, pooled as the checkpoint says."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
import torch
from completions import ask
from daemon import Daemon
from media import image_part, make_image, text_part
from reference import Case, Reference, transformers
from torch.nn.functional import normalize

pytestmark = pytest.mark.daemon("hidden states of prompts that real workers compute piece by piece")

TEXTS = ["What is a river?", "A lake, and how it differs from a river that runs through the valley to the sea.", "Sea"]


@pytest.mark.daemon(model="pooled_texts", prefill_chunk_tokens=8)
def test_texts(daemon: Daemon) -> None:
    text_model = daemon.engine.config.checkpoint.model
    tokens = transformers.AutoTokenizer.from_pretrained(text_model)
    model = transformers.AutoModel.from_pretrained(text_model, dtype=torch.float32).eval()
    ids = [tokens(text)["input_ids"] for text in TEXTS]
    assert {each[-1] for each in ids} == {tokens.convert_tokens_to_ids("<|endoftext|>")}
    with torch.inference_mode():
        hidden = [model(torch.tensor([each])).last_hidden_state[0] for each in ids]
    expected = torch.stack([normalize(states.mean(0), dim=0) for states in hidden])

    def embed(given: Any, **options: Any) -> torch.Tensor:
        answer = daemon.client.embeddings.create(model=daemon.engine.model_name, input=given, **options)
        assert [each.index for each in answer.data] == list(range(len(answer.data)))
        return torch.tensor([each.embedding for each in answer.data])

    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(embed, given) for given in (TEXTS, ids) * 4]
        assert all(torch.allclose(result.result(), expected, atol=1e-5) for result in results)
    assert torch.allclose(embed(TEXTS[1], encoding_format="float"), expected[1:2], atol=1e-5)
    usage = daemon.client.embeddings.create(model=daemon.engine.model_name, input=ids).usage
    assert usage.prompt_tokens == sum(map(len, ids))
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        ask(daemon, text_part("Hello"))
    with pytest.raises(openai.BadRequestError, match="the context holds"):
        embed([[5] * 9000])
    daemon.wait_idle()


@pytest.mark.daemon(model="pooled_images", prefill_chunk_tokens=32, placement="monolithic")
def test_images(daemon: Daemon, hf: Reference) -> None:
    image, text = make_image(3, 90, 120), text_part("What is this?")
    inputs = hf.inputs(Case([{"role": "user", "content": [{"type": "image"}, text]}], images=[image]))
    with torch.inference_mode():
        expected = normalize(hf.model.model(**inputs).last_hidden_state[0, -1], dim=0)
    body = {"messages": [{"role": "user", "content": [image_part(image), text]}], "add_generation_prompt": True}
    for _ in range(2):
        answer = httpx.post(f"{daemon.url}/v1/embeddings", json=body, timeout=300).json()
        assert torch.allclose(torch.tensor(answer["data"][0]["embedding"]), expected, atol=1e-5)
        assert "media" not in answer["usage"]
    told = httpx.post(f"{daemon.url}/v1/embeddings", json=body | {"return_media_usage": True}, timeout=300).json()
    (seen,) = told["usage"]["media"]
    assert (seen["kind"], seen["width"], seen["height"]) == ("image", 120, 90)
    daemon.wait_idle()
