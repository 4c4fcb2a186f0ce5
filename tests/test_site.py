"""The documentation site: its contents, its written pages and its Python pages, without MkDocs."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tinyai
from docs import build, notebooks, written
from tests.support.paths import ROOT
from tinyai import errors
from tinyai.cli import main

DOCS = ROOT / "docs"
SETTINGS = yaml.safe_load((DOCS / "mkdocs.yml").read_text())
DOCUMENTED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def contents(entry: Any) -> Iterator[str]:
    """The pages that the site's navigation names."""
    match entry:
        case str(page):
            yield page
        case list(entries):
            for each in entries:
                yield from contents(each)
        case dict(titled):
            for each in titled.values():
                yield from contents(each)


def public(module: str) -> list[str]:
    """The names of a module's ``__all__``, read from its source: not every one can be imported."""
    tree = ast.parse((ROOT / "tinyai" / module).read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return list(names)


def test_every_page_is_once_in_the_navigation_which_names_no_other() -> None:
    named = list(contents(SETTINGS["nav"]))
    pages = [place for place in (*build.pages(), *build.WRITTEN) if place.endswith(".md")]
    assert sorted(named) == sorted(pages)


def test_a_link_out_of_the_pages_leads_to_what_the_site_has_of_it() -> None:
    text = (
        "[a](../../tutorials/x.ipynb#y) [b](../glossary.md) [c](https://d.e/f) [g](../../LICENSE)"
    )
    moved = "[a](../tutorials/x.md#y) [b](../glossary.md) [c](https://d.e/f) [g](../license.md)"
    assert build.staged("guides/page.md", text, build.DOCS / "guides/page.md") == moved


@pytest.mark.parametrize("place", [place for place in build.pages() if place.endswith(".md")])
def test_links_of_a_page_lead_to_pages_of_the_site(place: str) -> None:
    source = build.pages()[place]
    known = {*build.pages(), *build.WRITTEN}
    text = source.read_text()
    if source.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for match in build.LINK.finditer(build.staged(place, text, source)):
        assert os.path.normpath(os.path.join(os.path.dirname(place), match[2])) in known


def test_what_a_page_loads_from_a_network_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "SITE", tmp_path)
    inner = '<script src="a.js"></script><img src=b.svg><a href="https://c.d">'
    (tmp_path / "page.html").write_text(inner)
    assert build.loaded_from_elsewhere() == []
    (tmp_path / "page.html").write_text(f'{inner}<link rel=x href="https://fonts.e/f.css">')
    assert build.loaded_from_elsewhere() == ["page.html: https://fonts.e/f.css"]


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path: Path) -> None:
    outputs = [
        {"output_type": "stream", "text": ["1\n"]},
        {"output_type": "display_data", "data": {"image/svg+xml": ["<svg/>"]}},
        {"output_type": "execute_result", "data": {"text/plain": ["'two'"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": outputs},
        {"cell_type": "code", "source": [], "outputs": []},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    notebooks.write_page(tmp_path / "n.ipynb", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    code = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n![What the code above drew](page-1.svg)"
    assert page.startswith(f"# Title\ntext\n\n{code}\n\n```text\n'two'\n```\n\nThis page is")
    assert (tmp_path / "page-1.svg").read_text() == "<svg/>"


def test_the_page_of_commands_has_each_with_its_options_and_examples() -> None:
    sections = re.split(r"^## tinyai (.+)$", written.commands(), flags=re.MULTILINE)[1:]
    by_name = dict(zip(sections[::2], sections[1::2], strict=True))
    assert by_name.keys() == main.commands.keys()
    for name, command in main.commands.items():
        assert all(f"\n{example}\n" in by_name[name] for example in command.examples)
        if name != "tvmc":
            flags = [flag for option in command.params for flag in option.opts if "--" in flag]
            assert all(re.search(rf"\n\| `.*{flag}\b.*` \| ", by_name[name]) for flag in flags)


def test_the_index_of_errors_has_each_kind_and_each_message_with_what_to_try() -> None:
    index = written.errors()
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, (errors.TinyAIError, Warning)) and kind.__module__ == errors.__name__:
            assert f"| `{name}` | " in index
    row = "| unknown option of the tinyai target | OptionError | … | "
    assert f"{row}in a target string an option reads -name=value |" in index


@pytest.mark.parametrize(
    ("module", "prefix"),
    [
        ("__init__.py", "tinyai"),
        ("relax.py", "tinyai.relax"),
        ("executorch.py", "tinyai.executorch"),
    ],
)
def test_every_public_name_is_on_a_page(module: str, prefix: str) -> None:
    shown = [name for page in DOCS.rglob("*.md") for name in DOCUMENTED.findall(page.read_text())]
    found = [name for name in shown if name.rpartition(".")[0] == prefix]
    elsewhere = {"watched"} if prefix == "tinyai.relax" else set()  # of ExecuTorch's page
    assert sorted(found) == sorted(f"{prefix}.{name}" for name in {*public(module)} - elsewhere)


def documented(module: str, name: str) -> bool:
    """Whether a name that a module takes from another of the package has a docstring there, and so
    have its public methods; read from the source."""
    tree = ast.parse((ROOT / "tinyai" / module).read_text())
    (source,) = (
        node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and name in [each.name for each in node.names]
    )
    file = ROOT / f"{source.replace('.', '/')}.py"
    (found,) = (
        node
        for node in ast.parse(file.read_text()).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
    )
    public_ones = [
        node
        for node in found.body
        if isinstance(node, ast.FunctionDef)
        and isinstance(found, ast.ClassDef)
        and not node.name.startswith("_")
    ]
    return all(map(ast.get_docstring, [found, *public_ones]))


@pytest.mark.parametrize("module", ["relax.py", "executorch.py"])
def test_public_names_of_other_environments_say_what_they_are_for(module: str) -> None:
    assert [name for name in public(module) if not documented(module, name)] == []


@pytest.mark.parametrize("name", tinyai.__all__)
def test_a_public_name_and_what_it_has_say_what_they_are_for(name: str) -> None:
    value = getattr(tinyai, name)
    assert inspect.getdoc(value)
    for inner, member in vars(value).items() if isinstance(value, type) else ():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if not inner.startswith("_") and inspect.isfunction(function):
            assert function.__doc__, f"{name}.{inner}"


def test_without_a_browser_the_pictures_say_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "pictures.py")]
    environment = os.environ | {"PATH": str(tmp_path)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "apt install chromium" in run.stderr
