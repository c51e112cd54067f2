"""Patterns that a module compiles are compiled when they are used, and match as they would."""

import copy
import importlib
import re
from types import ModuleType

from unifiedserve.models.late_patterns import compiling_late


def _module(source: str) -> ModuleType:
    module = ModuleType("compiles")
    exec(f"import re\n{source}", vars(module))
    return module


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    module = _module("def make(text): return re.compile(text), re.sub('a', 'b', text)")
    with compiling_late(module):
        late, other = module.make(r"layers\.(?P<layer>\d+)"), module.make("(")[1]
    assert module.re is re
    assert other == "("
    assert late[1] == r"lbyers\.(?P<lbyer>\d+)"
    found = late[0].search("model.layers.12.weight")
    assert found
    assert found["layer"] == "12"
    assert dict(late[0].groupindex) == {"layer": 1}


def test_flags_hold() -> None:
    module = _module("def make(text): return re.compile(text, re.IGNORECASE)")
    with compiling_late(module):
        late = module.make("a")
    assert late.search("A")


def test_a_module_that_compiles_nothing_stays_as_it_is() -> None:
    module = ModuleType("plain")
    with compiling_late(module):
        pass
    assert "re" not in vars(module)


def test_a_copy_matches_as_well() -> None:
    module = _module("pattern = None\ndef make(text): return re.compile(text)")
    with compiling_late(module):
        late = copy.deepcopy(module.make("a+"))
    assert late.sub("b", "caab") == "cbb"


def test_transformers_rules_are_those_that_it_makes_itself() -> None:
    """All models' rules are looked at: each would be compiled at its start otherwise."""
    conversion, loading = (
        importlib.import_module(f"transformers.{name}") for name in ("conversion_mapping", "core_model_loading")
    )
    build = getattr(conversion, "_build_checkpoint_conversion_mapping")  # noqa: B009
    with compiling_late(loading):
        late = build()
    eager = build()
    assert late.keys() == eager.keys()
    patterns = 0
    for name, rules in eager.items():
        for own, other in zip(rules, late[name], strict=True):
            patterns += 1
            assert other.compiled_sources.pattern == own.compiled_sources.pattern
    assert patterns > 100
