"""`import flashcodec` imports what is used of it: layouts alone come without FFmpeg."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flashcodec

LOADED = "import sys; {use}; print('flashcodec._core' in sys.modules)"


@pytest.mark.parametrize(
    ("use", "loaded"),
    [
        ("import flashcodec", False),
        ("from flashcodec import RGBLayout", False),
        ("import flashcodec; flashcodec.DecodeError", False),
        ("from flashcodec.image import WHITE", False),
        ("import flashcodec; flashcodec.Limits()", False),
        ("import flashcodec; flashcodec.PatchLayout(28, 28)", True),
        ("import flashcodec; flashcodec.VideoDecoder", True),
        ("import flashcodec; flashcodec.samplers.clips_at_random_indices", True),
        ("from flashcodec import *; VideoDecoder", True),
    ],
)
def test_ffmpeg_is_loaded_when_it_is_needed(use: str, loaded: bool) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED.format(use=use)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{loaded}\n", "")


@pytest.mark.parametrize("name", flashcodec.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(flashcodec, name) is getattr(flashcodec, name)
    assert name in dir(flashcodec)


def test_type_checkers_and_readers_find_the_same() -> None:
    """The names are in the file twice, because checkers do not run what finds them."""
    assert flashcodec.__file__
    tree = ast.parse(Path(flashcodec.__file__).read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    for module, name in ((each.module, alias.name) for each in imports for alias in each.names):
        found = getattr(flashcodec, name)
        assert module == "flashcodec" or getattr(sys.modules[module or ""], name) is found
    assert {alias.name for each in imports for alias in each.names} >= set(flashcodec.__all__) - {
        "add_decoding_request",
        "cancel",
        "get_decoding_output",
    }


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(AttributeError, match="module 'flashcodec' has no attribute 'VideoDecodr'"):
        flashcodec.VideoDecodr  # type: ignore[attr-defined]  # noqa: B018
