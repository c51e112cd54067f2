"""The playground's files: complete, well-formed, and from nowhere else; tests/engine/test_playground.py uses them."""

import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

import unifiedserve

FOLDER = Path(unifiedserve.__file__).parent / "server" / "playground"
MODULES = sorted(FOLDER.glob("*.js"))


async def test_the_page_and_all_that_it_loads_is_there(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    loaded = re.findall(r'(?:src|href)="(playground/[^"]+)"', page.text)
    assert len(loaded) == 2
    for path in loaded + [f"playground/{module.name}" for module in MODULES]:
        response = await client.get(f"/{path}")
        assert response.status_code == 200
        assert "default-src 'self'" in response.headers["content-security-policy"]
    assert (await client.get("/playground/missing.js")).status_code == 404


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.name)
def test_nothing_comes_from_elsewhere(file: Path) -> None:
    urls = set(re.findall(r"https?://[^\s\"'`)]+", file.read_text()))
    assert urls <= {"http://www.w3.org/2000/svg"}, "the page must work offline"
    assert "innerHTML" not in file.read_text(), "text from models and files is never markup"


@pytest.mark.parametrize("module", MODULES, ids=lambda file: file.name)
def test_modules_import_what_is_there(module: Path) -> None:
    for names, source in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', module.read_text()):
        exported = (FOLDER / source).read_text()
        for name in map(str.strip, names.split(",")):
            assert re.search(rf"export (async )?(function\*?|class|const) {name}\b", exported), f"{name} of {source}"


@pytest.mark.parametrize("module", MODULES, ids=lambda file: file.name)
def test_modules_parse(module: Path, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    copy = tmp_path / "module.mjs"
    copy.write_text(module.read_text())
    subprocess.run([node, "--check", copy], check=True)


async def test_the_settings_tell_the_limits_and_the_samples(client: httpx.AsyncClient) -> None:
    settings = (await client.get("/playground/settings")).json()
    assert (settings["model"], settings["max_model_len"], settings["compared"]) == ("scripted", 4096, "")
    assert settings["max_upload_bytes"] == 512 << 20
    assert "drawn shapes only" in settings["model_note"]  # no model was named
    assert settings["samples"]
    for sample in settings["samples"]:
        response = await client.get(sample["url"])
        assert response.headers["content-type"].startswith(sample["kind"])
