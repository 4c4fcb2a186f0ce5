"""Libraries and objects that were compiled before and are found again, in the user's cache.

They are code that runs in the user's process. So the folder is his alone, and the name of a file
has the SHA-256 of its bytes, which are compared with it before they are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

MOST_KEPT = 64  # libraries of a kind
MOST_OBJECTS = 2048  # names; an object of some 100 kB has the names of all that is in it


def kept_folder(kind: str) -> Path | None:
    """``~/.cache/tinyai/KIND``, which only the user can read; None where it cannot be written. One
    that belongs to another user is not used, and a warning says so."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        own = Path(home) / "tinyai"
        folder = own / kind
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for each in (own, folder):
            if not each.lstat().st_uid == each.stat().st_uid == os.geteuid():
                warnings.warn(
                    f"{each} belongs to another user: what is compiled is not kept. Remove it, or "
                    "set XDG_CACHE_HOME to a folder of your own",
                    stacklevel=2,
                )
                return None
            if stat.S_IMODE(each.stat().st_mode) & 0o077:  # parents have the usual mode
                each.chmod(0o700)
    except (OSError, RuntimeError):  # a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None


def kept_library(
    kind: str,
    key: str,
    make: Callable[[Path], None],
    stack: contextlib.ExitStack,
    suffix: str = ".so",
    most: int | None = None,
) -> Path:
    """The library that is kept under ``key``, or what ``make`` writes at a path. Where the folder
    of the ``kind`` does not take it, it is gone when ``stack`` is closed."""
    folder = kept_folder(kind)
    found = _whole(folder, key, suffix) if folder else None
    if found:
        return found
    made = tempfile.TemporaryDirectory(prefix=".tinyai-" if folder else "tinyai-", dir=folder)
    library = Path(stack.enter_context(made)) / f"{key}{suffix}"
    make(library)
    if folder is None:
        return library
    place = folder / _name(key, library)
    os.replace(library, place)
    drop_old(folder, suffix, most)
    return place


def _name(key: str, library: Path) -> str:
    return f"{key}-{hashlib.sha256(library.read_bytes()).hexdigest()}{library.suffix}"


def _whole(folder: Path, key: str, suffix: str) -> Path | None:
    """The library of a key, whose bytes are those that its name tells; others go."""
    for path in folder.glob(f"{key}-*{suffix}"):
        with contextlib.suppress(FileNotFoundError):  # others may drop it meanwhile
            if path.name == _name(key, path):
                return path
            path.unlink()
    return None


def drop_old(folder: Path, suffix: str = ".so", most: int | None = None) -> None:
    """Only the newest files are kept. Others may do the same meanwhile."""
    with contextlib.suppress(OSError):
        found = [(path.stat().st_mtime_ns, path) for path in folder.glob(f"*{suffix}")]
        for _, path in sorted(found)[: -(most or MOST_KEPT)]:
            path.unlink()


def kept_objects(kind: str, keys: Collection[str]) -> dict[str, bytes]:
    """The objects that are kept under some of these keys, and are as they were written; of one
    that has several keys there is one copy."""
    folder = kept_folder(kind)
    found, contents = dict[str, bytes](), dict[str, bytes]()
    for path in folder.glob("*.o") if folder else ():
        key, _, digest = path.stem.partition("-")
        if key not in keys:
            continue
        with contextlib.suppress(OSError):  # others may drop it meanwhile
            content = contents[digest] if digest in contents else path.read_bytes()
            if hashlib.sha256(content).hexdigest() == digest:
                found[key] = contents[digest] = content
            else:
                path.unlink()
    return found


def keep_object(kind: str, keys: Iterable[str], content: bytes) -> None:
    """Keep an object under each of the keys: one file of many names. What the folder does not take
    is left out."""
    folder, digest = kept_folder(kind), hashlib.sha256(content).hexdigest()
    if folder is None:
        return
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=folder) as own:
        whole = Path(own) / "whole"
        whole.write_bytes(content)
        for key in keys:
            with contextlib.suppress(FileExistsError):
                os.link(whole, folder / f"{key}-{digest}.o")
    drop_old(folder, ".o", MOST_OBJECTS)
