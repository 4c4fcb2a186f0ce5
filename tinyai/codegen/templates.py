"""The templates of the folder ``templates``, rendered."""

from __future__ import annotations

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=PackageLoader("tinyai.codegen"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # C, not HTML; every name passes codegen.c first
)


@functools.lru_cache(maxsize=512)
def render_core(template: str, /, **values: Any) -> str:
    """The same for functions that many layers share, from values that can be compared: rendered
    once."""
    return render(template, **values)


def render(template: str, /, **values: Any) -> str:
    """C from a template; a name that it lacks is an error."""
    return _TEMPLATES.get_template(template).render(values)
