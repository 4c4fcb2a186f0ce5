"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tinyai import c_head
from tinyai.errors import OptionError

# What a file that may be written over has near its beginning.
MARK = c_head.MARK.encode()


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file, by way of one beside it. Raises ``OptionError`` where that is not possible."""
    with _saying(path), _beside(path.parent) as folder:
        (folder / "file").write_bytes(content)
        os.replace(folder / "file", path)
    return path


def write_folder(folder: Path, files: Mapping[str, bytes], gone: Collection[str] = ()) -> Path:
    """Write files into a folder, by way of one beside it; the folder is made where it is missing.
    A name may be one in a folder in it, as in ``net/net.c``.

    Files of the same names are replaced if they are ours; those called ``gone`` are removed, with
    folders that are empty then. Raises ``OptionError`` where a file in the way is not ours, or
    where writing fails; then all is as it was.
    """
    with _saying(folder):
        if folder.exists():
            _check_ours(folder, files)
        with _beside(folder.parent) as beside:
            new, old = beside / "new", beside / "old"
            new.mkdir()
            old.mkdir()
            for name, content in files.items():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                (new / name).write_bytes(content)
            if folder.exists():
                _exchange(folder, new, old, (*gone, *files))
            else:
                os.replace(new, folder)
    return folder


def _exchange(folder: Path, new: Path, old: Path, names: tuple[str, ...]) -> None:
    """Move new files into the folder and those of their names out of it, and all back where that
    fails. A name without a new file only goes."""
    made = {name: (new / name).exists() for name in names}
    folders = {(folder / name).parent for name in names} - {folder}
    missing = [each for each in folders if not each.exists()]
    try:
        for name in names:
            if (folder / name).exists():
                _move(folder / name, old / name)
            if made[name]:
                _move(new / name, folder / name)
    except BaseException:
        for name in names:
            if (old / name).exists():
                os.replace(old / name, folder / name)
            elif made[name] and not (new / name).exists():
                (folder / name).unlink(missing_ok=True)
        _remove_empty(missing)
        raise
    _remove_empty(folders)


def _move(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, place)


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _check_ours(folder: Path, files: Mapping[str, bytes]) -> None:
    if not folder.is_dir():
        raise OptionError(
            f"folder {str(folder)!r}",
            found="a file",
            allowed="a folder, or a name that nothing has",
        )
    for name, content in files.items():
        path = folder / name
        inner = path.parent
        if inner.exists() and not inner.is_dir():
            path, name = inner, inner.name
        if not path.exists() and not path.is_symlink():
            continue
        found = path.read_bytes() if path.is_file() and path != inner else None
        if found is None or not (c_head.is_generated(found) or found == content):
            raise OptionError(
                f"folder {str(folder)!r}",
                found=f"{name}, which tinyai did not write",
                allowed="a new folder, or that of an earlier package",
                hint="another folder",
            )


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder for what is not whole yet, where moving from is renaming."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder, prefix=".tinyai-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _saying(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"writing {str(path)!r}",
            found=error.strerror or str(error),
            allowed="a place where files can be written",
            hint="another place",
        ) from None
