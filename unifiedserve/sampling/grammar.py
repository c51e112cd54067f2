"""Follow grammars in answers: made from what clients write, compiled for a tokenizer, matched by token.

A grammar is text (llguidance's own format), and where a match stands follows from the grammar and the tokens so far. So
a grammar travels with its request, and the sampling worker makes the matcher, or makes it again.
"""

import json
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from cachetools import LRUCache
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, grammar_from
from numpy.typing import NDArray

from unifiedserve.sampling.closed_schema import closed

MAX_GRAMMAR_CHARACTERS = 1 << 18
_KEPT = 64  # compiled grammars
_LONGEST_REASON = 300
_LIMITS = LLParserLimits(verbose_errors=False)

# Between JSON's tokens: pretty-printed, but no model can write spaces without end.
_WHITESPACE = r" | ?\n{1,2}[ \t]{0,20}"
JSON_OBJECT = '{"type": "object"}'


class GrammarError(ValueError):
    """Signal a grammar that cannot be compiled, or cannot go on where it has come."""


def json_grammar(schema: str, whitespace: str | None = None) -> str:
    """Make a grammar of the JSON texts that a schema (itself JSON text) allows; raises GrammarError if it is no JSON.

    `whitespace` is a regular expression for the space between JSON's tokens; "" allows none, None a space or a line's
    end with some indentation.
    """
    _check_size(schema)
    pattern = _WHITESPACE if whitespace is None else whitespace
    options: dict[str, Any] = {"whitespace_pattern": pattern} if pattern else {"whitespace_flexible": False}
    try:
        value = closed(json.loads(schema))
        if value is True:
            value = {}
        grammar: str = LLMatcher.grammar_from_json_schema(value, overrides=options)  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError) as error:
        raise GrammarError(f"not a JSON schema: {error}") from None
    return grammar


def regex_grammar(pattern: str) -> str:
    """Make a grammar of the texts that a regular expression (Rust's: no look-around or back references) matches."""
    _check_size(pattern)
    return LLMatcher.grammar_from_regex(pattern)


def choice_grammar(choices: Sequence[str]) -> str:
    """Make a grammar of exactly these texts."""
    literals = [json.dumps(choice, ensure_ascii=False) for choice in choices]
    return lark_grammar("start: " + " | ".join(literals))


def lark_grammar(text: str) -> str:
    """Make a grammar of a context-free one, in Lark's syntax or in GBNF/EBNF (`root ::= …`)."""
    _check_size(text)
    try:
        return grammar_from("gbnf" if "::=" in text else "lark", text)
    except Exception as error:  # the conversion raises what it likes
        raise GrammarError(str(error)) from None


class Matcher:
    """Hold the state of one answer in its grammar. It is not to be shared between threads."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._taken = 0

    def allowed(self, generated: Sequence[int], vocabulary: int) -> NDArray[np.bool_]:
        """Return which tokens may follow the `generated` ones: bool [vocabulary]; EOS where the text may end.

        `generated` must go on from that of the call before. Raises GrammarError if nothing may follow.
        """
        new = list(generated[self._taken :])
        self._taken = len(generated)
        if new:
            self._matcher.consume_tokens(new)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise GrammarError(_reason(self._matcher.get_error()))
        allowed = np.unpackbits(bits, count=vocabulary, bitorder="little").view(np.bool_)
        if not allowed.any():
            raise GrammarError("no token of the vocabulary can follow")
        return allowed


class Grammars:
    """Compile grammars for one tokenizer, and keep the latest. Safe to use from several threads."""

    def __init__(self, tokenizer: Callable[[], str], vocabulary: int, eos_token_ids: Collection[int]) -> None:
        """Prepare for the tokenizer whose JSON `tokenizer` returns."""
        self._vocabulary = vocabulary
        self._eos = sorted(eos_token_ids)
        self._compiled: LRUCache[str, LLMatcher] = LRUCache(_KEPT)
        self._lock = threading.Lock()
        self._tokenizer: Future[LLTokenizer] = Future()
        self._begun = False
        self._load_tokenizer = tokenizer

    def start(self) -> None:
        """Load the tokenizer in a thread of its own, once. It may take seconds and tens of MiB."""
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            threading.Thread(target=self._load, name="grammars", daemon=True).start()

    def matcher(self, grammar: str) -> Matcher:
        """Return a matcher for an answer without tokens yet; raises GrammarError if the grammar cannot be compiled.

        It waits until the tokenizer is loaded.
        """
        self.start()
        tokenizer = self._tokenizer.result()
        with self._lock:
            compiled = self._compiled.get(grammar) or LLMatcher(tokenizer, grammar, log_level=0, limits=_LIMITS)
            if compiled.is_error():
                raise GrammarError(_reason(compiled.get_error()))
            self._compiled[grammar] = compiled
            return Matcher(compiled.deep_copy())

    def check(self, grammar: str) -> None:
        """Raise GrammarError unless some text can follow the grammar's rules, by its first token."""
        self.matcher(grammar).allowed((), self._vocabulary)

    def wait(self) -> None:
        """Load the tokenizer, unless it is there; raises GrammarError if it cannot be used."""
        self.start()
        self._tokenizer.result()

    def _load(self) -> None:
        try:
            self._tokenizer.set_result(self._wrap(self._load_tokenizer()))
        except Exception as error:
            self._tokenizer.set_exception(GrammarError(f"this checkpoint's tokenizer cannot be constrained: {error}"))

    def _wrap(self, tokenizer: str) -> LLTokenizer:
        if not self._eos:
            raise ValueError("it has no token for the end of an answer")
        return LLTokenizer(tokenizer, n_vocab=self._vocabulary, eos_token=self._eos)


def tokenizer_json(tokenizer: Any) -> str:
    """Return the JSON of a transformers tokenizer: its fast form, with the tokens added to it."""
    text: str = tokenizer.backend_tokenizer.to_str()
    return text


def _check_size(text: str) -> None:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise GrammarError(f"longer than {MAX_GRAMMAR_CHARACTERS} characters")


def _reason(message: str) -> str:
    """Return an error without the source that the compiler quotes below it."""
    line = message.strip().partition("\n")[0]
    return "there is no text that follows it" if line.startswith("NoExtension") else line[:_LONGEST_REASON]
