"""What is read off prompts: log probabilities of their tokens, vectors pooled from chunks."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, PromptLogprobs, PromptVector
from unifiedserve.models.pooling import Pooling
from unifiedserve.worker.language.prompt_reader import PromptReader


def request(token_ids: list[int], count: int | None = None, *, embed: bool = False) -> PrefillRequest:
    return PrefillRequest(
        ticket=Ticket(4, 0),
        token_ids=token_ids,
        num_prompt=len(token_ids),
        media=[],
        sampling=SamplingParams(max_tokens=0, prompt_logprobs=count),
        indices=[0],
        embed=embed,
    )


def read(
    adapter: Any, asked: PrefillRequest, hidden: torch.Tensor, chunks: list[int]
) -> list[PromptLogprobs | PromptVector]:
    reader, messages, start = PromptReader(adapter), [], 0
    prompt: Any = SimpleNamespace(request=asked, pooled=None)
    for part in hidden.split(chunks):
        messages += list(reader.read(prompt, start, part))
        start += len(part)
    return messages


@pytest.mark.parametrize("mode", ["cls", "lasttoken", "mean"])
@pytest.mark.parametrize("chunks", [[10], [3, 6, 1]])
def test_chunks_are_pooled_as_a_whole(mode: Any, chunks: list[int]) -> None:
    hidden = torch.randn(10, 6)
    adapter = SimpleNamespace(pooling=Pooling(mode, False))
    (message,) = read(adapter, request([1] * 10, embed=True), hidden, chunks)
    assert isinstance(message, PromptVector)
    expected = {"cls": hidden[0], "lasttoken": hidden[-1], "mean": hidden.mean(0)}[mode]
    assert torch.allclose(torch.frombuffer(bytearray(message.data), dtype=torch.float32), expected, atol=1e-6)


@pytest.mark.parametrize("chunks", [[200], [1, 70, 129]])
def test_every_token_but_the_first_is_scored(chunks: list[int]) -> None:
    """Also a placeholder that the model cannot say; `hidden` are the logits."""
    token_ids = torch.randint(9, (200,)).tolist()
    token_ids[50] = 9
    hidden = torch.randn(200, 9)
    adapter = SimpleNamespace(logits=lambda states: states)
    tokens = {}
    for message in read(adapter, request(token_ids, 2), hidden, chunks):
        assert isinstance(message, PromptLogprobs)
        tokens |= dict(enumerate(message.tokens, message.start))
    assert list(tokens) == list(range(1, 200))
    logprobs = hidden.log_softmax(-1)
    for position, token in tokens.items():
        row = logprobs[position - 1]
        assert token.token == token_ids[position]
        assert [each for each, _ in token.top] == row.topk(2).indices.tolist()
        own = float(row[token.token]) if position != 50 else float("-inf")
        assert token.logprob == pytest.approx(own)
        assert token.rank == 1 + int((row > own).sum())
