"""What an earlier start compiled of texts is taken from the cache, is the same, and is made again when it is not."""

import collections
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unifiedserve import kept_texts

PROGRAM = """
import re, sys
import re._parser
from unifiedserve.kept_texts import begin_keeping, end_keeping

made = []
parse = re._parser.parse
re._parser.parse = lambda *args: made.append(args[0]) or parse(*args)
sys.addaudithook(lambda event, args: made.append(args) if event == "compile" and args[1] == "<string>" else None)
begin_keeping("tests")
from collections import namedtuple
from dataclasses import dataclass, field
made.clear()

@dataclass(order=True, frozen=True)
class Point:
    x: int
    y: list[int] = field(default_factory=list)

Pair = namedtuple("Pair", "first second", defaults=[2])
patterns = [re.compile(f"(?P<number>[0-9]{{{count}}})|\\\\w+", re.I) for count in range(1, OTHERS)]
count = len(made)
end_keeping()
number = patterns[1].match("12")["number"]
print(count, Point(1) < Point(2), Point(1, [3]), hash(Pair(1)) == hash((1, 2)), Pair(1), number)
"""


def _start(cache: Path, others: int = 60) -> tuple[int, str]:
    """Return how many texts a program has compiled, and what it printed besides."""
    command = [sys.executable, "-c", PROGRAM.replace("OTHERS", str(others))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"XDG_CACHE_HOME": str(cache), "PATH": "/bin"}
    )
    count, _, printed = done.stdout.strip().partition(" ")
    return int(count), printed


RIGHT = "True Point(x=1, y=[3]) True Pair(first=1, second=2) 12"


def test_the_second_start_compiles_nothing(tmp_path: Path) -> None:
    first, second = (_start(tmp_path) for _ in range(2))
    assert (first[0] > 60, first[1], second) == (True, RIGHT, (0, RIGHT))


def test_a_few_new_texts_are_compiled_each_time(tmp_path: Path) -> None:
    _start(tmp_path)
    written = (tmp_path / "unifiedserve" / "compiled-texts-tests").stat()
    assert [_start(tmp_path, others=65) for _ in range(2)] == [(5, RIGHT)] * 2
    assert (tmp_path / "unifiedserve" / "compiled-texts-tests").stat().st_ino == written.st_ino, "not worth a write"


def test_what_no_start_uses_any_more_is_dropped(tmp_path: Path) -> None:
    _start(tmp_path, others=500)
    kept = tmp_path / "unifiedserve" / "compiled-texts-tests"
    large = kept.stat().st_size
    kept.write_bytes(kept.read_bytes()[:-1])
    _start(tmp_path, others=60)
    assert kept.stat().st_size < large / 4


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"cut off", b"a bit"], ids=["empty", "zeros", "short", "bit"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: bytes) -> None:
    _start(tmp_path)
    kept = tmp_path / "unifiedserve" / "compiled-texts-tests"
    whole = kept.read_bytes()
    if damage == b"cut off":
        damage = whole[: len(whole) // 2]
    elif damage == b"a bit":
        damage = whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]
    kept.write_bytes(damage)
    again, then = (_start(tmp_path) for _ in range(2))
    assert (again[0] > 60, again[1], then) == (True, RIGHT, (0, RIGHT))


def test_a_file_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    """Somebody else could have put code into it."""
    _start(tmp_path)
    kept = tmp_path / "unifiedserve" / "compiled-texts-tests"
    kept.chmod(0o666)
    again, then = (_start(tmp_path) for _ in range(2))
    assert (again[0] > 60, then) == (True, (0, RIGHT))
    assert not kept.stat().st_mode & 0o002


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_read(tmp_path: Path) -> None:
    _start(tmp_path)
    os.chown(tmp_path / "unifiedserve" / "compiled-texts-tests", 12345, 12345)
    assert _start(tmp_path)[0] > 60


def test_it_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "unifiedserve").write_text("a file, not a folder")
    first, second = (_start(tmp_path) for _ in range(2))
    assert first == second
    assert first[1] == RIGHT


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what this process compiles meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        kept_texts.begin_keeping("tests")
        yield
        kept_texts.end_keeping()


PATTERNS = st.recursive(
    st.sampled_from(
        ["a", "é", "😀", ".", r"\d", r"\w", r"\b", "^", "$", "[a-f]", "[^éa]", "(?i:B)", "[\u0370-\u03ff]"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        inner.map("(?:{})*".format),
        inner.map("(?={})".format),
    ),
    max_leaves=6,
)
FLAGS = st.sampled_from([0, re.IGNORECASE, re.ASCII, re.MULTILINE | re.DOTALL, re.VERBOSE])


@pytest.mark.usefixtures("keeping")
@given(PATTERNS, FLAGS, st.text(alphabet="abBéÉ😀19 \nω", max_size=12))
@example("(?P<one>a)(?P<two>b)?", 0, "ab")
def test_a_pattern_of_kept_codes_finds_the_same(pattern: str, flags: int, text: str) -> None:
    re.purge()
    first = re.compile(pattern, flags)
    re.purge()
    kept = re.compile(pattern, flags)
    assert kept is not first
    assert (kept.pattern, kept.flags, kept.groups, kept.groupindex) == (
        first.pattern,
        first.flags,
        first.groups,
        first.groupindex,
    )
    assert [(m.span(), m.groups()) for m in kept.finditer(text)] == [
        (m.span(), m.groups()) for m in first.finditer(text)
    ]


@pytest.mark.usefixtures("keeping")
def test_mistakes_are_told_as_ever() -> None:
    with pytest.raises(re.error, match="unterminated"):
        re.compile("(" + "x" * 3)
    with pytest.raises(TypeError):
        re.compile(7)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="duplicate"):
        collections.namedtuple("Bad", "one one")
    with pytest.raises(TypeError, match="non-default argument"):
        dataclasses.make_dataclass("Bad", [("one", int, 1), ("two", int)])
    assert re.compile(re.compile("a")).pattern == "a"
    assert re.compile(b"[\xe9]", re.IGNORECASE).match(b"\xe9")


def test_all_is_as_before_in_the_end() -> None:
    program = (
        "import collections, dataclasses, re\n"
        "from unifiedserve.kept_texts import begin_keeping, end_keeping\n"
        "modules = (collections, dataclasses, re._compiler)\n"
        "before = [dict(vars(module)) for module in modules]\n"
        "begin_keeping('tests')\n"
        "during = [dict(vars(module)) for module in modules]\n"
        "end_keeping(); end_keeping()\n"
        "print(before == [vars(module) for module in modules], before == during)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True False"
