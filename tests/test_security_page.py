"""What docs/security.md claims is held by tests that there are."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (REPOSITORY / "docs" / "security.md").read_text())))


@pytest.mark.parametrize(("path", "test"), NAMED, ids=lambda name: str(name))
def test_what_holds_a_claim_is_there(path: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test or r'test_'}", (REPOSITORY / path).read_text(), re.MULTILINE)


def test_claims_are_found() -> None:
    assert len(NAMED) > 30
