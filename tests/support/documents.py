"""Code of pages, run as a reader would run it: the blocks of a page, in their order, in one folder.

A block of shell commands runs by ``sh -e``. Blocks of Python share their names. A block whose first
line is a comment with a file's name becomes that file; of C or CMake it has to. A block that cannot
run in a test has a line in front of it that says why: ``<!-- not run: a download -->``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import MODELS, ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
CODE = ("sh", "python", "c", "cmake")
NAMED = re.compile(r"(?:/\*|#) ([\w.]+\.\w+)(?: \*/)?\n")
# What a machine may lack; blocks that call it are left out there.
TOOLS = ("arm-none-eabi-gcc", "cmake", "cc", "c++", "make")
# Pages that are not for the environment of the TVM with Relay.
EXECUTORCH = ("backends-tinyai.md", "questions/not-delegated.md", "questions/out-of-tree.md")
RELAX = ("relax.md",)


@dataclass(frozen=True)
class Block:
    """Code of a page. ``reason`` says why it does not run, if it does not."""

    language: str
    text: str
    reason: str

    @property
    def file(self) -> str:
        """The file that it becomes, if it does."""
        named = NAMED.match(self.text)
        return named[1] if named else ""

    @property
    def missing(self) -> str:
        """A tool that it calls and that this machine lacks."""
        words = self.text.split() if self.language == "sh" else []
        return next((tool for tool in TOOLS if tool in words and not shutil.which(tool)), "")


def pages() -> dict[str, Path]:
    """The pages whose code runs, by their places in docs/; README beside them."""
    found = [*sorted(DOCS.glob("guides/*.md")), *sorted(DOCS.glob("questions/*.md"))]
    found += [DOCS / name for name in (*EXECUTORCH[:1], *RELAX)]
    return {"README.md": ROOT / "README.md"} | {
        path.relative_to(DOCS).as_posix(): path for path in found
    }


def blocks(page: Path) -> list[Block]:
    """All code of a page."""
    found = BLOCK.finditer(page.read_text())
    made = [Block(each["language"], each["text"], each["reason"] or "") for each in found]
    return [block for block in made if block.language in CODE]


def script_of(code: Iterable[Block]) -> str:
    """Python that runs the blocks one after the other."""
    lines = ["import subprocess", "import tests.support.kept_tinyai"]
    lines.append("names = {'__name__': '__main__'}")
    for block in code:
        if block.file:
            lines.append(f"open({block.file!r}, 'w').write({block.text!r})")
        if block.language == "sh":
            lines.append(f"subprocess.run(['sh', '-ec', {block.text!r}], check=True)")
        elif block.language == "python":
            lines.append(f"exec(compile({block.text!r}, {block.text[:40]!r}, 'exec'), names)")
        elif not block.file:
            raise ValueError(f"a block of {block.language} without the name of a file")
    return "\n".join(lines) + "\n"


def run_page(page: Path, folder: Path) -> str:
    """What the code of a page prints in ``folder``, where ``tinyai`` and ``python`` are this
    process's, and ``pip`` looks only whether there is what it is to install."""
    tools = folder / "bin"
    if not tools.exists():
        tools.mkdir()
        for name, call in {"python": "", "tinyai": "-m tests.support.kept_tinyai"}.items():
            _write_tool(tools / name, f'exec "{sys.executable}" {call} "$@"')
        _write_tool(tools / "pip", f'exec "{sys.executable}" "{__file__}" "$@"')
    code = [block for block in blocks(page) if not (block.reason or block.missing)]
    script = folder / "page.py"
    script.write_text(script_of(code))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ
        | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def write_network(folder: Path) -> None:
    """Writes net.tflite and x.npy, which pages take for the reader's own."""
    model = MODELS / "kws_ref_model.tflite"
    if not model.exists():
        pytest.skip(f"no {model}")
    shutil.copy(model, folder / "net.tflite")
    x = np.random.default_rng(0).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
    np.save(folder / "x.npy", x)


def _write_tool(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def check_install(arguments: list[str]) -> None:
    """Ends with an error where ``pip install`` asks for an extra that tinyai does not have."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"].keys()
    assert arguments[0] == "install"
    for wanted in arguments[1:]:
        (extras,) = re.findall(r"^(?:tinyai|\.)\[([\w,]+)\]$", wanted)
        assert set(extras.split(",")) <= known, wanted


if __name__ == "__main__":
    check_install(sys.argv[1:])
