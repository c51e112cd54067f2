"""The images: how they start the server, and what they are made from."""

import fnmatch
import json
import re
from pathlib import Path

import pytest
from project_files import IMAGES, REPOSITORY, options_of, project

of_each = pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)


def said(image: Path, instruction: str) -> list[str]:
    """Return what stands behind the lines of a Dockerfile that begin so."""
    return re.findall(rf"^{instruction} (.+)$", image.read_text(), re.MULTILINE)


@of_each
def test_the_bases_are_of_one_version(image: Path) -> None:
    bases = [re.fullmatch(r"([\w/]+:\d+\.\d+\.\d+)-\w+-([\w.]+)", base.split()[0]) for base in said(image, "FROM")]
    (built, run) = [base.groups() if base else None for base in bases]
    assert built == run is not None  # the same FFmpeg, Python and CUDA: those of one distribution


@of_each
def test_the_server_is_started_without_a_shell(image: Path) -> None:
    ((entry,), (command,)) = said(image, "ENTRYPOINT"), said(image, "CMD")
    assert json.loads(entry)[-1] in project()["project"]["scripts"]
    assert options_of(json.loads(command))["--host"] == "0.0.0.0"


@of_each
def test_the_health_check_asks_the_server(image: Path) -> None:
    (check,) = said(image, " +CMD")
    *python, program = json.loads(check)
    assert python == ["python", "-c"]
    compile(program, image.name, "exec")
    assert "('127.0.0.1', 8000)" in program
    assert "'/health'" in program


@pytest.mark.parametrize(
    "name", ["CMakeLists.txt", "LICENSE", "README.md", "flashcodec", "ipc_buffers", "native", "unifiedserve"]
)
def test_what_a_build_needs_is_not_kept_from_docker(name: str) -> None:
    assert (REPOSITORY / name).exists()
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert not [pattern for pattern in ignored if fnmatch.fnmatch(name, pattern.removeprefix("**/"))]
