"""The command where the extra `serve` is not installed."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
from project_files import project

from unifiedserve.cli import __main__ as command

SERVE = project()["project"]["optional-dependencies"]["serve"]


def run_without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as its script does, in a process that cannot import a package."""
    module, _, function = project()["project"]["scripts"]["unifiedserve"].partition(":")
    code = f"import sys; sys.modules[{package!r}] = None; from {module} import {function} as run; run()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("package", ["typer", "msgspec"])
@pytest.mark.parametrize("arguments", [[], ["serve"]])
def test_it_says_what_to_install_in_one_line(package: str, arguments: list[str]) -> None:
    result = run_without(package, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f'unifiedserve: {package} is not installed: pip install "unifiedserve[serve]"\n'


def test_a_cluster_names_its_extra() -> None:
    result = run_without("ray", "cluster", "status")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == 'unifiedserve: ray is not installed: pip install "unifiedserve[serve,cluster]"\n'


def test_only_the_standard_library_is_imported_before() -> None:
    code = (
        "import sys; before = set(sys.modules); import unifiedserve.cli.__main__;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["unifiedserve"]


def test_the_packages_are_those_of_the_extra() -> None:
    installed = packages_distributions()
    brought = {name.lower().replace("_", "-") for module in command._SERVE for name in installed[module]}
    assert brought == {re.split(r"[^\w-]", requirement)[0] for requirement in SERVE}


def test_a_fault_of_ours_is_not_taken_for_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'unifiedserve.gone'", name="unifiedserve.gone")

    monkeypatch.setattr("unifiedserve.cli.app.main", fail)
    with pytest.raises(ModuleNotFoundError):
        command.main()
