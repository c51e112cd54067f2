"""What tries grammars out is ended where a signal stops it: nobody waits for it for ever."""

import os
from collections.abc import Iterator

import psutil
import pytest

from unifiedserve.engine.admission.grammar_check import GrammarChecker
from unifiedserve.models.chat import load_tokenizer
from unifiedserve.models.default import DEFAULT_CHECKPOINT
from unifiedserve.sampling.grammar import GrammarError, json_grammar, regex_grammar, tokenizer_json


@pytest.fixture
def checker() -> Iterator[GrammarChecker]:
    tokenizer = load_tokenizer(DEFAULT_CHECKPOINT)
    checker = GrammarChecker(lambda: tokenizer_json(tokenizer), len(tokenizer), [tokenizer.eos_token_id])
    yield checker
    checker.close()


def stopped_child(known: list[psutil.Process]) -> psutil.Process:
    """Stop the child that tries grammars out; returns when it is."""
    (child,) = [each for each in psutil.Process().children() if each not in known]
    child.suspend()
    while child.status() != psutil.STATUS_STOPPED:
        os.sched_yield()
    return child


def test_a_grammar_is_tried_out_by_another_one(checker: GrammarChecker) -> None:
    known = psutil.Process().children()
    checker.check(json_grammar('{"type": "boolean"}'))
    child = stopped_child(known)
    checker.check(regex_grammar("a+"))
    with pytest.raises(GrammarError):
        checker.check(regex_grammar("("))
    assert not child.is_running()


def test_a_stopped_one_is_closed(checker: GrammarChecker) -> None:
    known = psutil.Process().children()
    checker.check(json_grammar('{"type": "boolean"}'))
    child = stopped_child(known)
    checker.close()
    assert not child.is_running()
