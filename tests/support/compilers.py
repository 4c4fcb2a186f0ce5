"""What compilers make of C texts, kept on the disk.

A compiler makes the same of the same. So its output is found again by the compiler's own words on
what it is, by the arguments, and by the content of the files that they name; a text, an option or
a compiler that is another one compiles anew. Only what went through without a word is kept. What
cannot be told from these (options that are not known here, headers of one's own) is not kept, and
neither is anything with ``TINYAI_TEST_CACHE=0`` in the environment.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.disk import cache_folder, is_on, sha256_of, write_whole
from tinyai.runtime import toolchain

FOLDER = "compiled"
LIMIT_BYTES = 1 << 30
_NAMES = re.compile(r"(\w+-linux-gnu-)?(cc|gcc|g\+\+|clang|clang\+\+)$")
# Options that read and write no other file than the arguments name.
_OPTIONS = re.compile(
    r"-(c|shared|static|fPIC|ffunction-sections|Wl,--gc-sections|lm|l?pthread|fsyntax-only|fno-omit-frame-pointer|xc\+\+|std=[\w+]+|O\w?|g"
    r"|W[\w=-]*|[DU][^\s]+|f(no-)?sanitize(-[\w-]+)?=[\w,-]+)$"
)
_OWN_HEADER = re.compile(rb"^\s*#\s*(include|include_next|embed)\s*[^<\s]", re.MULTILINE)
_HEADER = re.compile(rb"^\s*#\s*include\s*<([^>]*)>", re.MULTILINE)
_INTRINSICS = re.compile(rb"^#include <immintrin.h>$", re.MULTILINE)
_OF_LANGUAGE = re.compile(r"-(f(?!syntax-only)|std=|O|g|pthread)")
_ENVIRONMENT = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "LIBRARY_PATH"),
    *("GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "SOURCE_DATE_EPOCH"),
)


def use(patch: pytest.MonkeyPatch) -> None:
    """Let tinyai's toolchain ask here first."""
    patch.setattr(toolchain, "subprocess", SimpleNamespace(run=run))


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run(command, ...)``; where ``command`` is a compiler's, what it gave before."""
    key, output = _key_and_output(command)
    if key is None:
        return subprocess.run(command, **options)
    kept = cache_folder() / FOLDER / key
    try:
        content = kept.read_bytes()
    except FileNotFoundError:
        result = _run_quickly(command, **options) or subprocess.run(command, **options)
        if result.returncode == 0 and not result.stdout and not result.stderr:
            write_whole(kept, output.read_bytes() if output else b"")
        return result
    kept.touch()
    if output:
        output.write_bytes(content)
        output.chmod(0o755)
    said = "" if options.get("text") else b""
    return subprocess.CompletedProcess(command, 0, said, said)


def drop_old(limit: int = LIMIT_BYTES) -> None:
    """Let go what was not asked for longest, until no more than ``limit`` bytes are kept."""
    paths = [*(cache_folder() / FOLDER).glob("*"), *(cache_folder() / "headers").glob("*/*.gch")]
    found = [(path, path.stat()) for path in paths if path.is_file()]
    total = 0
    for path, stat in sorted(found, key=lambda each: -each[1].st_mtime):
        total += stat.st_size
        if total > limit:
            path.unlink(missing_ok=True)


def _run_quickly(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any] | None:
    """The same with ``immintrin.h`` precompiled, which is most of what gcc reads of a small file;
    None where that does not fit, or where there is something to be said."""
    first = _first_header([str(word) for word in command])
    if first is None:
        return None
    result = subprocess.run([*command, "-include", first], **options)
    return None if result.returncode or result.stdout or result.stderr else result


def _first_header(words: list[str]) -> str | None:
    """A header to be read before the C file, which includes ``immintrin.h`` itself. Not with
    sanitizers, which gcc 12 crashes on; not where macros of the file change what headers say."""
    texts = [Path(word).read_bytes() for word in words if word.endswith(".c")]
    identity = _identity(shutil.which(words[0]) or "") or ""
    if "gcc version" not in identity or words[0].endswith("++") or "-xc++" in words:
        return None
    if not texts or not all(_INTRINSICS.search(text) for text in texts):
        return None
    if any(b"_SOURCE" in text for text in texts) or any("sanitize" in word for word in words):
        return None
    options = sorted(word for word in words if _OF_LANGUAGE.match(word))
    folder = cache_folder() / "headers" / sha256_of(identity, options)
    header = folder / "first.h"
    precompiled = folder / "first.h.gch"
    if not precompiled.exists():
        write_whole(header, b"#include <immintrin.h>\n")
        made = _precompiled(words[0], options, header)
        if made is None:
            return None
        write_whole(precompiled, made)
    precompiled.touch()
    return str(header)


def _precompiled(compiler: str, options: list[str], header: Path) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "first.h.gch"
        command = [compiler, *options, "-x", "c-header", str(header), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, check=False)
        return output.read_bytes() if done.returncode == 0 else None


def _key_and_output(command: Sequence[str]) -> tuple[str | None, Path | None]:
    """What the outcome depends on, and the file that is written."""
    words = [str(word) for word in command]
    compiler = shutil.which(words[0]) if words else None
    if not is_on() or compiler is None:
        return None, None
    identity = _identity(compiler) if _NAMES.search(Path(words[0]).name) else None
    arguments: list[object] = []
    output: Path | None = None
    if identity is None:
        return None, None
    folders = [word for word in words if word.startswith("-I") and word != "-I"]
    rest = iter(words[1:])
    for word in rest:
        if word == "-o":
            name = next(rest, os.devnull)
            output = None if name == os.devnull else Path(name)
            arguments.append(("-o", output is not None))
        elif _OPTIONS.match(word) or word in folders:
            arguments.append(word)
        else:
            content = _content(Path(word), [Path(each[2:]) for each in folders])
            if content is None:
                return None, None
            arguments.append((Path(word).name, content))
    if "-o" not in words and "-fsyntax-only" not in words:
        return None, None  # a name of the compiler's choice
    environment = [os.environ.get(name) for name in _ENVIRONMENT]
    return sha256_of(identity, arguments, environment), output


def _content(path: Path, folders: Sequence[Path]) -> bytes | None:
    """A source, object or library that stands for itself: it reads no header of the folders."""
    if path.suffix not in (".c", ".cc", ".o", ".so") or not path.is_file():
        return None
    content = path.read_bytes()
    if path.suffix in (".c", ".cc"):
        headers = [name.decode() for name in _HEADER.findall(content)]
        if _OWN_HEADER.search(content) or any((f / h).exists() for f in folders for h in headers):
            return None
    return content


@functools.cache
def _identity(compiler: str) -> str | None:
    """What the compiler says of itself, and the C library; None for a script."""
    path = Path(compiler).resolve()
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
    try:
        said = subprocess.run([compiler, "-v"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    stat = path.stat()
    return f"{said.stderr} {stat.st_size} {stat.st_mtime_ns} {os.confstr('CS_GNU_LIBC_VERSION')}"
