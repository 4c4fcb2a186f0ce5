"""The compiler's header of intrinsics, precompiled: gcc takes longer to read it than to compile the
body of a small network."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from tinyai.runtime.kept import kept_folder, kept_library
from tinyai.runtime.toolchain import Toolchain

KIND = "headers"
MOST_KEPT = 2  # of 20 MB each
# With these headers say other things, or gcc 12 crashes (sanitizers).
_NOT_WITH = ("-std=", "-D", "-fsanitize=")


def first_header(
    toolchain: Toolchain,
    header: str,
    folder: Path,
    started: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> list[str]:
    """Options of gcc that make a C file begin with ``header``, which it includes anyway, as it is
    kept in the user's cache; none where that is not possible. ``folder`` is a temporary one;
    ``started`` gets the compiler's process, which leads a group of its own.

    What gcc does not take, it reads as text.
    """
    identity = toolchain.identity()
    words = toolchain.command()
    if not identity or any(word.startswith(_NOT_WITH) for word in words):
        return []
    if "Free Software Foundation" not in identity or words[0].endswith("++"):
        return []
    text = folder / "first.h"
    text.write_text(f"#include <{header}>\n")

    def make(place: Path) -> None:
        command = [*words, "-fPIC", "-x", "c-header", "-o", str(place), str(text)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet, process_group=0) as process:
            if started is not None:
                started(process)
        if process.returncode != 0:
            raise OSError(f"{words[0]} ended with {process.returncode}")

    key = hashlib.sha256(repr((identity, header)).encode()).hexdigest()
    if kept_folder(KIND) is None:
        return []
    with contextlib.ExitStack() as stack:
        try:
            made = kept_library(KIND, key, make, stack, ".gch", MOST_KEPT)
            text.with_suffix(".h.gch").symlink_to(made)
        except OSError:  # done without
            return []
    return ["-include", str(text)]
