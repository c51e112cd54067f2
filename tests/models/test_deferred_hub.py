"""`transformers` is imported without what talks with the hub, which works all the same where something uses it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
{first}
from unifiedserve.models.hub import load_transformers
load_transformers()
assert "huggingface_hub.hf_api" not in sys.modules
import huggingface_hub
import transformers.utils.hub as used
{use}
"""
IN_WORKERS = "from unifiedserve.models.deferred_torch import import_torch; import_torch()"


@pytest.mark.parametrize("first", [IN_WORKERS, ""], ids=["worker", "without torch"])
@pytest.mark.parametrize(
    ("use", "printed"),
    [
        ("print(type(used.hf_api()) is huggingface_hub.HfApi)", "True"),
        ("api = huggingface_hub.HfApi(); print(isinstance(api, used.HfApi), isinstance(1, used.HfApi))", "True False"),
        ("print(issubclass(huggingface_hub.ModelCard, used.ModelCard), issubclass(int, used.ModelCard))", "True False"),
        ("print(used.ModelCardData(language='en').to_dict())", "{'language': 'en'}"),
        ("print(used.ModelCard.load == huggingface_hub.ModelCard.load)", "True"),
        ("class Own(used.ModelCard): pass\nprint(Own.__mro__[1] is huggingface_hub.ModelCard)", "True"),
        ("import huggingface_hub.hf_api as h; print(h.HfApi is huggingface_hub.HfApi)", "True"),
        ("print(huggingface_hub.snapshot_download.__module__)", "huggingface_hub._snapshot_download"),
        (
            "try: used.snapshot_download('a/b', local_files_only=True, cache_dir='/nowhere')\n"
            "except used.LocalEntryNotFoundError: print('not there')",
            "not there",
        ),
        (
            "import tempfile, huggingface_hub.file_download as download\n"
            "with download.WeakFileLock(tempfile.mkdtemp() + '/lock') as lock: print(lock.is_locked)",
            "True",
        ),
        ("from huggingface_hub.utils import yaml_dump; print(yaml_dump({'a': 1}))", "a: 1"),
        ("import filelock; print(isinstance(filelock.FileLock('/nowhere'), filelock.BaseFileLock))", "True"),
        ("print(used.HfApi | None, None | used.HfApi)", "typing.Any typing.Any"),
    ],
    ids=[
        "made",
        "instance",
        "subclass",
        "data",
        "method",
        "base",
        "module",
        "function",
        "download",
        "lock",
        "yaml",
        "locks",
        "annotation",
    ],
)
def test_a_name_is_what_it_stands_for(first: str, use: str, printed: str) -> None:
    program = PROGRAM.format(first=first, use=use)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr
