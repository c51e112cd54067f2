"""The modules that `transformers` lists of itself are those that it would list without our help."""

import os
import subprocess
import sys
from pathlib import Path

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


OURS = "from unifiedserve.models.hub import load_transformers; load_transformers()"


def _listed(first: str, cache: Path) -> list[str]:
    program, environment = LISTS.format(first=first), os.environ | {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_list_is_the_same(tmp_path: Path) -> None:
    function, *theirs = _listed("", tmp_path)
    quick, *ours = _listed(OURS, tmp_path)
    assert (function, quick) == ("create_import_structure_from_path", "listing_of_folder")
    assert ours == theirs
    assert _listed(OURS, tmp_path) == [quick, *theirs], "as it is kept"
    assert int(ours[0]) > 100
