"""Notebooks as pages of the site: text, code, and what the code printed or drew."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

# Pictures by their types, as files of a page.
PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def write_page(notebook: Path, target: Path) -> None:
    """Writes ``target`` (.md), and beside it the pictures that it shows."""
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif text.strip():
            parts.append(f"```python\n{text}\n```")
            stem = target.with_name(f"{target.stem}-{number}")
            parts += [_output(output, stem) for output in cell["outputs"]]
    parts.append(f"This page is the notebook `tutorials/{notebook.name}`.")
    target.write_text("\n\n".join(filter(None, parts)) + "\n")


def _output(output: dict[str, Any], stem: Path) -> str:
    if "text" in output:
        return _block("".join(output["text"]))
    data = output.get("data", {})
    for kind, suffix in PICTURES.items():
        if kind in data:
            file = stem.with_suffix(f".{suffix}")
            content = "".join(data[kind])
            file.write_bytes(content.encode() if suffix == "svg" else base64.b64decode(content))
            return f"![What the code above drew]({file.name})"
    return _block("".join(data.get("text/plain", "")))


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
