"""README, guides and questions are in short sentences, and their terms are in the glossary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.documents import DOCS, pages

MOST_WORDS = 22  # a sentence, in the mean of a page
# Terms that a new reader cannot know: who uses one in a page defines it in the glossary.
TERMS = {
    *("accumulator", "activation", "arena", "bundle", "calibration", "C package", "delegate"),
    *("dequantize", "epilogue", "fixed point", "front end", "graph", "host", "instruction set"),
    *("kernel", "library", "lower bound", "microkernel", "multiply-accumulate", "observer", "pass"),
    *("pattern", "per channel", "QDQ", "quantize", "reference", "region", "requantization"),
    *("scale", "scratch", "state", "tuning file", "vocabulary", "zero point", "arithmetic"),
}


def prose(page: Path) -> str:
    """The text of a page without code, tables, headings, pictures and the targets of links."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("#", "|", "!["))]
    text = re.sub(r"^( *)(?:[*-]|\d+\.) ", r"\n\n", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


def sentences(text: str) -> list[str]:
    """Each with its words; a paragraph and an item of a list end one."""
    parts = re.split(r"\n\s*\n|(?<=[.!?])\**\s+", text)
    return [words for part in parts if (words := " ".join(part.split()))]


def glossary() -> set[str]:
    text = (DOCS / "glossary.md").read_text()
    return {term.strip().lower() for term in re.findall(r"^\| ([^|`]+) \|", text, re.MULTILINE)}


def test_sentences_are_counted_without_code_tables_and_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Not this\n\nOne two [three](a.md).\nFour `a b c` six.\n\n| no | no |\n\n"
        "```sh\nnot this\n```\n\n- an item\n- another one, with\n  a second line\n"
    )
    found = sentences(prose(page))
    assert found == [
        "One two three.",
        "Four code six.",
        "an item",
        "another one, with a second line",
    ]


@pytest.mark.parametrize("place", pages())
def test_a_page_is_in_short_sentences(place: str) -> None:
    found = sentences(prose(pages()[place]))
    words = [len(each.split()) for each in found]
    longest = sorted(found, key=lambda each: -len(each.split()))[:5]
    assert sum(words) / len(words) <= MOST_WORDS, longest


@pytest.mark.parametrize("place", pages())
def test_terms_of_a_page_are_in_the_glossary(place: str) -> None:
    text = prose(pages()[place]).lower()
    used = {term for term in TERMS if re.search(rf"\b{term.lower()}(?:s|es)?\b", text)}
    assert {term.lower() for term in used} <= glossary()
