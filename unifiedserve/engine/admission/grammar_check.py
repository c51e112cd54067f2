"""Try grammars out in a process of its own, before any worker sees them.

Compilers of regular expressions, schemas and grammars can be made to run for hours, to eat the memory or to overflow
the stack. Here that costs a child process, which the kernel ends, and the client gets its 400.
"""

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection

import msgspec
from cachetools import LRUCache

from unifiedserve.environment import environment_without_secrets
from unifiedserve.parents_end import end_with_parent
from unifiedserve.sampling.grammar import GrammarError, Grammars
from unifiedserve.sandbox import code_paths, give_up
from unifiedserve.stopped import killed_if_stopped

CPU_SECONDS = 0.5
MEMORY_BYTES = 2 << 30
_STACK_BYTES = 4 << 20  # half of what a worker's main thread has
_KEPT = 256
_TRIES = 3  # of which each has a child of its own
_CONFINED = "--confined"


class _Setup(msgspec.Struct):
    tokenizer: str
    vocab_size: int
    eos_token_ids: list[int]


class GrammarChecker:
    """Ask the child process, which is started at the first question. Safe to use from several threads."""

    def __init__(
        self, tokenizer: Callable[[], str], vocab_size: int, eos_token_ids: Collection[int], *, confined: bool = True
    ) -> None:
        """Take what the child is set up with; `confined`: it gives up what it does not need.

        `tokenizer` gives the tokenizer's JSON (`unifiedserve.sampling.grammar.tokenizer_json`).
        """
        self._options = [_CONFINED] if confined else []
        self._setup = (tokenizer, vocab_size, sorted(eos_token_ids))
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._good: LRUCache[str, None] = LRUCache(_KEPT)

    def check(self, grammar: str) -> None:
        """Raise GrammarError if workers cannot compile the grammar, or no token can begin the answer."""
        with self._lock:
            if grammar not in self._good:
                if reason := self._ask(grammar):
                    raise GrammarError(reason)
                self._good[grammar] = None

    def close(self) -> None:
        """End the child."""
        with self._lock:
            if self._child is not None:
                self._child.kill()  # one that a signal has stopped would not end by itself
            self._end()

    def _ask(self, grammar: str) -> str:
        for _ in range(_TRIES):
            child = self._child or self._start()
            with killed_if_stopped(child):
                if answer := _answer(child, grammar):
                    return str(json.loads(answer))
                code = self._end()
            if code == -signal.SIGPROF:
                return f"it takes more than {CPU_SECONDS:g} s to compile"
            if code != -signal.SIGKILL:  # which comes from outside
                return "it needs too much memory, or nests too deep, to compile"
        return "the process that tries it out was killed each time"

    def _start(self) -> "subprocess.Popen[bytes]":
        tokenizer, vocab_size, eos = self._setup
        setup = msgspec.json.encode(_Setup(tokenizer(), vocab_size, eos))
        command = [sys.executable, "-m", "unifiedserve.engine.admission.grammar_check", *self._options]
        self._child = child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment_without_secrets()
        )
        with killed_if_stopped(child):
            _send(child, setup)
        return child

    def _end(self) -> int:
        child, self._child = self._child, None
        if child is None:
            return 0
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        return child.wait()


def _answer(child: "subprocess.Popen[bytes]", grammar: str) -> bytes:
    """Return the line that answers a grammar; nothing from a child that has ended."""
    assert child.stdout is not None
    _send(child, json.dumps(grammar).encode())
    return child.stdout.readline()


def _send(child: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended, as the answer will say
        child.stdin.write(line + b"\n")
        child.stdin.flush()


def _reason(grammars: Grammars, grammar: str) -> str:
    """Return why a grammar is of no use; "" if it is of use. The process ends if it takes too long to find out."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        grammars.check(grammar)
    except GrammarError as error:
        return str(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _answer_all() -> None:
    setup = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Setup)
    grammars = Grammars(lambda: setup.tokenizer, setup.vocab_size, setup.eos_token_ids)
    grammars.wait()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        print(json.dumps(_reason(grammars, json.loads(line))), flush=True)


def main() -> None:
    """Run the process: a line of set-up comes in, then a JSON string a line goes each way."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _CONFINED in sys.argv:
        give_up(readable=code_paths())
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_answer_all)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
