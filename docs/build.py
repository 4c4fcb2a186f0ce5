"""Builds the documentation site: pages into build/docs, and of them build/site, by MkDocs.

``make docs`` calls it in the environment .venv-docs. The pages of docs/ link as the repository has
them, so that they can be read there as well; links that leave docs/ become links of the site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs import notebooks, written  # noqa: E402  # of the repository

DOCS, STAGED, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "build" / "site"
# What the site has: the pages, and what they show.
SUFFIXES = {".md", ".svg", ".css", ".js"}
LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]+)?\)")
# Of the repository outside of docs/, what the site has, and where.
ELSEWHERE = {"README.md": "index.md", "LICENSE": "license.md"}
# The page with which the site begins is the project's own.
HOME = {"index.md": ROOT / "README.md"}
# What a page may load: nothing from elsewhere.
LOADED = re.compile(
    r"""<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=["']?([^"'\s>]+)"""
)
WRITTEN = {
    "license.md": lambda: f"# License\n\n```\n{(ROOT / 'LICENSE').read_text()}```\n",
    "reference/commands.md": written.commands,
    "reference/errors.md": written.errors,
}


def pages() -> dict[str, Path]:
    """Where each file of the site comes from, by its place in it."""
    found = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*"))}
    chosen = {place: path for place, path in found.items() if path.suffix in SUFFIXES}
    tutorials = sorted((ROOT / "tutorials").glob("*.ipynb"))
    return HOME | chosen | {f"tutorials/{path.stem}.md": path for path in tutorials}


def staged(place: str, text: str, source: Path) -> str:
    """A page as the site has it: links lead to what the site has of the repository, from where the
    ``source`` of the page lies."""

    def moved(match: re.Match[str]) -> str:
        target = source.parent.joinpath(match[2]).resolve()
        inside_docs = source.is_relative_to(DOCS) and target.is_relative_to(DOCS)
        if not target.is_relative_to(ROOT) or inside_docs:
            return match[0]
        inside = target.relative_to(ROOT).as_posix().removeprefix("docs/").replace(".ipynb", ".md")
        up = "../" * place.count("/")
        return f"{match[1]}{up}{ELSEWHERE.get(inside, inside)}{match[3] or ''})"

    return LINK.sub(moved, text)


def stage() -> None:
    """Writes build/docs anew."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for place, path in pages().items():
        target = STAGED / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb":
            notebooks.write_page(path, target)
            target.write_text(staged(place, target.read_text(), path))
        elif path.suffix == ".md":
            target.write_text(staged(place, path.read_text(), path))
        else:
            shutil.copy(path, target)
    (STAGED / "reference").mkdir(exist_ok=True)
    for place, text in WRITTEN.items():
        (STAGED / place).write_text(text())


def loaded_from_elsewhere() -> list[str]:
    """What pages of the site load from a network."""
    return [
        f"{page.relative_to(SITE)}: {target}"
        for page in sorted(SITE.rglob("*.html"))
        for target in LOADED.findall(page.read_text())
        if re.match(r"(https?:)?//", target)
    ]


def main() -> int:
    stage()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean"]
    command += ["--config-file", "docs/mkdocs.yml"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # of the theme, about what may come
    done = subprocess.run(command, cwd=ROOT, env=quiet, check=False)
    if done.returncode:
        return done.returncode
    outer = loaded_from_elsewhere()
    if outer:
        print("The site has to work without a network, but loads:", *outer, sep="\n  ")
        return 1
    print(f"{len(list(SITE.rglob('*.html')))} pages: open build/site/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
