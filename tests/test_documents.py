"""The pages name files, definitions and sections that there are."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from docs.build import WRITTEN

ROOT = Path(__file__).parents[1]
FOLDERS = "tinyai", "tests", "benchmarks", "docs"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# A row of the glossary: a term, its meaning, its file and maybe a name in it.
ROW = re.compile(r"^\| ([^|`]+) \| ([^|]+)\. \| `([^`]+)`(?:: `(\w+)`)? \|$")
OUTER = re.compile(r"https?://[^\s)>`]+")
MOST_LINES = 300
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def glossary() -> list[str]:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    return [
        line for line in lines if line.startswith("|") and not line.startswith(("|---", "| term |"))
    ]


def definitions(text: str) -> set[str]:
    """What a Python file or a template defines."""
    at = r"^(?:class|def) (\w+)|^(\w+)(?:: [^=]+)? = |^static .*?\b(\w+)\("
    return {name for found in re.findall(at, text, re.M) for name in found if name}


def sections(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("line", glossary(), ids=lambda line: line.split("|")[1].strip())
def test_a_term_of_the_glossary_is_defined_where_it_says(line: str) -> None:
    row = ROW.match(line)
    assert row, "a row is a term, a sentence, and a file with a name in it or without"
    _, _, file, name = row.groups()
    text = (ROOT / file).read_text()
    assert name is None or name in definitions(text), f"{file} defines no {name}"


def test_terms_of_the_glossary_are_said_once_and_sorted_in_each_table() -> None:
    terms = [line.split("|")[1].strip() for line in glossary()]
    assert len(set(terms)) == len(terms)
    text = (ROOT / "docs" / "glossary.md").read_text()
    for table in text.split("\n## ")[1:]:
        found = [term for term in terms if f"\n| {term} | " in table]
        assert found == sorted(found, key=str.lower)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_to_files_and_sections(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for file, section in LINK.findall(text):
        target = page.parent / file if file else page
        if (place := os.path.relpath(target, DOCS)) in WRITTEN:
            continue
        assert target.exists(), place
        assert not section or section in sections(target), f"{file}#{section}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_files_and_templates_that_a_page_names_are_there(page: Path) -> None:
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*.*")]
    for named in re.findall(r"`([\w./]+\.(?:py|j2))`", page.read_text()):
        assert any(f"/{path}".endswith(f"/{named}") for path in files), named


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short_enough_to_be_read(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= MOST_LINES


def test_links_to_other_sites_are_those_of_one_list() -> None:
    listed = (DOCS / "outer-links.txt").read_text().split()
    used = {link.rstrip(".,") for page in PAGES for link in OUTER.findall(page.read_text())}
    assert listed == sorted(used)
