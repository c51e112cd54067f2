"""Hooks of mkdocs: pages link to files anywhere in the repository, and their code blocks are checked."""

import json
import logging
import os
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
HOME = ROOT / "README.md"
ALWAYS = [HOME, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<text>!?\[[^\]\n]*(?:\n[^\]\n]+)?\])\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_log = logging.getLogger("mkdocs.hooks.docs_site")  # in strict mode a warning of mkdocs' loggers ends the build


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to, and those that these link to."""
    pages = [*ALWAYS, *(Path(str(file.abs_src_path)) for file in files.documentation_pages())]
    seen = set(pages)
    for page in pages:  # it grows
        uri = uri_of(page)
        if files.get_file_from_path(uri) is None:
            inclusion = InclusionLevel.INCLUDED if page in ALWAYS else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, abs_src_path=str(page), inclusion=inclusion))
        if page.suffix == ".md":
            linked = [target_of(match, page) for match in LINK.finditer(FENCE.sub("", page.read_text()))]
            new = dict.fromkeys(path for path in linked if path.is_file() and path not in seen)
            seen.update(new)
            pages.extend(new)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page whose links lead to where the site has their files; warns of code that cannot be parsed."""
    path = Path(str(page.file.abs_src_path))
    for block in FENCE.finditer(markdown):
        if fault := fault_of(block["language"], textwrap.dedent(block["code"])):
            line = markdown.count("\n", 0, block.start()) + 1
            _log.warning("%s:%d: this %s block is wrong: %s", path.relative_to(ROOT), line, block["language"], fault)
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [LINK.sub(lambda match: link_of(match, path), markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(lambda match: link_of(match, path), markdown[end:])])


def target_of(match: re.Match[str], page: Path) -> Path:
    """Return the file or folder of the repository that a link names; of a folder its README, if it has one."""
    target = (page.parent / match["path"]).resolve()
    readme = target / "README.md"
    return readme if readme.is_file() else target


def link_of(match: re.Match[str], page: Path) -> str:
    """Return a link as the site needs it; of what is no file in it, only the text."""
    target = target_of(match, page)
    if target.is_dir():
        return match["text"].strip("[]")
    if not target.exists():
        return match[0]  # mkdocs says so
    path = os.path.relpath(uri_of(target), Path(uri_of(page)).parent)
    return f"{match['text']}({path}{match['anchor'] or ''})"


def uri_of(path: Path) -> str:
    """Return where the site has a file of the repository."""
    if path == HOME:
        return "index.md"
    return str(path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT))


def fault_of(language: str, code: str) -> str:
    """Return why a code block cannot be parsed; empty if it can, or if nobody here knows its language."""
    try:
        PARSERS.get(language, lambda _: None)(code)
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        return str(error)
    return ""


def parse_shell(code: str) -> None:
    """Raise ValueError for code that is no program of bash."""
    result = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True)
    if result.returncode:
        raise ValueError(result.stderr.strip())


PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "python": lambda code: compile(code, "block", "exec"),
    "sh": parse_shell,
    "toml": tomllib.loads,
    "yaml": lambda code: list(yaml.compose_all(code, yaml.SafeLoader)),
}
