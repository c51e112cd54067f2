"""Embeddings are transformers' own hidden states, pooled as the checkpoint says."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from builders import chat_template, save, text_sizes, tokenizer
from daemon import Daemon
from media import image_part, make_image, text_part
from reference import Case, Reference, transformers
from test_life_of_requests import ask
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import normalize

Serve = Callable[..., Daemon]

TEXTS = ["What is a river?", "A lake, and how it differs from a river that runs through the valley to the sea.", "Sea"]


def add_pooling(checkpoint: Path, mode: str) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    (checkpoint / "1_Pooling").mkdir()
    (checkpoint / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved without a head, by a tokenizer that ends each text with a mark."""
    whole, bare = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("bare")
    tokens = tokenizer()
    end = ("<|endoftext|>", tokens.convert_tokens_to_ids("<|endoftext|>"))
    tokens._tokenizer.post_processor = TemplateProcessing(single="$0 <|endoftext|>", special_tokens=[end])
    save(whole, transformers.Qwen3Config(**text_sizes(tokens)), tokens, chat_template({}))
    transformers.AutoModel.from_pretrained(whole).save_pretrained(bare)
    for file in whole.glob("*token*"):
        shutil.copy(file, bare)
    add_pooling(bare, "mean_tokens")
    return bare


def test_texts(serve: Serve, text_model: Path) -> None:
    daemon = serve(model=str(text_model), prefill_chunk_tokens=8)
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


def test_images(serve: Serve, checkpoint: Path, hf: Reference, tmp_path: Path) -> None:
    model = shutil.copytree(checkpoint, tmp_path / "model")
    add_pooling(model, "lasttoken")
    daemon = serve(model=str(model), prefill_chunk_tokens=32, placement="monolithic")
    image, text = make_image(3, 90, 120), text_part("What is this?")
    inputs = hf.inputs(Case([{"role": "user", "content": [{"type": "image"}, text]}], images=[image]))
    with torch.inference_mode():
        expected = normalize(hf.model.model(**inputs).last_hidden_state[0, -1], dim=0)
    body = {"messages": [{"role": "user", "content": [image_part(image), text]}], "add_generation_prompt": True}
    for _ in range(2):
        answer = httpx.post(f"{daemon.url}/v1/embeddings", json=body, timeout=300).json()
        assert torch.allclose(torch.tensor(answer["data"][0]["embedding"]), expected, atol=1e-5)
    daemon.wait_idle()
