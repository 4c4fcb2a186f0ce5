"""Files are written whole or not at all, and looked at before they are read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tinyai.errors import OptionError


@contextlib.contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """The path of a file in a folder beside ``file``, which takes its place after the block; where
    the block fails, nothing is left of it."""
    parent = file.absolute().parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=".tinyai-") as folder:
        beside = Path(folder) / file.name
        yield beside
        os.replace(beside, file)


def check_place(path: Path) -> None:
    """Raise ``OptionError`` where no file can be written, before the work begins."""
    try:
        parent = path.absolute().parent
    except FileNotFoundError:
        raise OptionError(
            "output file",
            found=f"{str(path)!r}: the current folder is gone",
            allowed="a file in a folder that can be written",
            hint="cd to another folder, or name the file by its whole path",
        ) from None
    wrong = (
        "a folder"
        if path.is_dir()
        else f"no folder {str(parent)!r}"
        if not parent.is_dir()
        else "a folder that cannot be written"
        if not os.access(parent, os.W_OK)
        else ""
    )
    if wrong:
        raise OptionError(
            "output file",
            found=f"{str(path)!r}: {wrong}",
            allowed="a file in a folder that can be written",
        )


def no_file(path: Path) -> str:
    """What is wrong with a file to read, as the end of a sentence; nothing for a regular file."""
    if path.is_file():
        return ""
    return "a folder" if path.is_dir() else "not a regular file" if path.exists() else "no file"
