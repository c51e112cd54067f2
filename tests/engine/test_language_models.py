"""A family's language model may be any that was tried: another is refused before it is served."""

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import internvl_with
from reference import transformers

ErrorOf = Callable[..., str]
SERVE = ("serve", "--port", "0", "--kv-cache-mib", "16", "--patch-buffer-mib", "16", "--visual-buffer-mib", "16")


def test_a_language_model_that_is_not_known(
    tmp_path: Path, error_of: ErrorOf, capfd: pytest.CaptureFixture[str]
) -> None:
    internvl_with(tmp_path, transformers.GPTNeoXConfig)
    capfd.readouterr()  # the bars of what saves it
    words = "config.json: text_config: model_type 'gpt_neox' is not supported as a language model; supported are "
    assert words in error_of(*SERVE, str(tmp_path))
