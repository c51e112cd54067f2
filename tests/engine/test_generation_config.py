"""A server's own sampling defaults reach the workers, and a request's own options go before them."""

import pytest
from completions import tokens
from daemon import Daemon

ONE = '{"top_k": 1}'  # as greedy as temperature 0


def _answer(daemon: Daemon, **said: float) -> list[int]:
    body = {"return_token_ids": True, "ignore_eos": True, **said}
    return tokens(daemon, {"type": "text", "text": "Name a river."}, temperature=None, extra_body=body, seed=3)


@pytest.mark.daemon("requests that do not say how tokens are chosen", override_generation_config=ONE)
def test_what_a_request_does_not_say(daemon: Daemon) -> None:
    greedy = _answer(daemon, temperature=0)
    assert _answer(daemon) == greedy
    assert _answer(daemon, top_k=0, temperature=50) != greedy
