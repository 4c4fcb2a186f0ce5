"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """The path of a file in a folder beside ``file``, which takes its place after the block; where
    the block fails, nothing is left of it."""
    parent = file.absolute().parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=".tinyai-") as folder:
        beside = Path(folder) / file.name
        yield beside
        os.replace(beside, file)
