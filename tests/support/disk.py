"""What tests keep on the disk between runs. Knows no TVM, which takes seconds to import.

``TINYAI_TEST_CACHE=0`` in the environment computes everything anew and leaves the disk alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def is_on() -> bool:
    return os.environ.get("TINYAI_TEST_CACHE", "1") != "0"


def on_disk(kind: str, name: str, make: Callable[[], bytes]) -> bytes:
    """The content of a file in the cache's folder ``kind``; made where it is missing.

    The file is written whole or not at all, so that processes may share the folder.
    """
    if not is_on():
        return make()
    path = cache_folder() / kind / name
    if not path.exists():
        write_whole(path, make())
    return path.read_bytes()


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinyai"


def write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        beside = Path(folder) / path.name
        beside.write_bytes(content)
        os.replace(beside, path)


def sha256_of(*parts: object) -> str:
    """A part is an array, text, bytes, or a mapping or sequence of such; anything else counts by
    its repr."""
    found = hashlib.sha256()
    _feed(found, parts)
    return found.hexdigest()


def _feed(into: Any, part: object) -> None:
    """Every part begins with its kind and size, so that different parts never read the same."""
    if isinstance(part, np.ndarray):
        into.update(f"array {part.dtype.str} {part.shape};".encode())
        into.update(np.ascontiguousarray(part).data)
    elif isinstance(part, Mapping):
        _feed(into, sorted(part.items()))
    elif isinstance(part, tuple | list):
        into.update(f"items {len(part)};".encode())
        for item in part:
            _feed(into, item)
    else:
        content = part if isinstance(part, bytes) else str(part).encode()
        into.update(f"{type(part).__name__} {len(content)};".encode())
        into.update(content)
