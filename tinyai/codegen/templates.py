"""The templates of the folders ``templates``, rendered: of all instruction sets, of each, and of
C packages."""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

_EMPTY = re.compile(r"\n{3,}")


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates of earlier processes, in the user's temporary folder: to compile them
    takes longer than to generate a small network. What cannot be written is left out."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def _cache() -> _Compiled | None:
    """None where there is no folder that is the user's alone."""
    try:
        return _Compiled()
    except (RuntimeError, OSError):
        return None


_TEMPLATES = Environment(
    loader=FileSystemLoader(sorted(Path(__file__).parents[1].glob("**/templates"))),
    undefined=StrictUndefined,
    bytecode_cache=_cache(),
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # C, not HTML; every name passes codegen.c first
)


@functools.lru_cache(maxsize=1024)
def rendered(template: str, macro: str, /, **values: Any) -> str:
    """C from a template, or from one of its macros, for what many layers share: rendered once, from
    values that can be compared."""
    made = _TEMPLATES.get_template(template)
    text = str(getattr(made.module, macro)(**values)) if macro else made.render(values)
    return tidy(text)


def render(template: str, /, **values: Any) -> str:
    """C from a template; a name that it lacks is an error."""
    return _TEMPLATES.get_template(template).render(values)


def tidy(text: str) -> str:
    """At most one empty line at a time: conditions leave some."""
    return _EMPTY.sub("\n\n", text).strip("\n") + "\n"
