"""The modules that `transformers` lists of itself are those that it would list without our help."""

import subprocess
import sys

LISTS = """
import hashlib
{first}
from transformers.utils.import_utils import create_import_structure_from_path, define_import_structure
import transformers
from pathlib import Path

def text(structure):
    return repr(sorted((sorted(key), sorted((name, sorted(names)) for name, names in modules.items()))
                       for key, modules in structure.items()))

folder = Path(transformers.__file__).parent / "models"
lists = text(define_import_structure(folder, prefix="all")) + text(define_import_structure(str(folder / "__init__.py")))
print(create_import_structure_from_path.__name__, lists.count("modeling_"), hashlib.sha256(lists.encode()).hexdigest())
"""


def _listed(first: str) -> list[str]:
    program = LISTS.format(first=first)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_list_is_the_same() -> None:
    function, *theirs = _listed("")
    quick, *ours = _listed("from unifiedserve.models.hub import load_transformers; load_transformers()")
    assert (function, quick) == ("create_import_structure_from_path", "listing_of_folder")
    assert ours == theirs
    assert int(ours[0]) > 100
