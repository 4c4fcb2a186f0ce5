"""The manifest of a C package: JSON beside its header that says what the package is, written with
the package and read where it is compiled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyai.c_head import MARK
from tinyai.codegen.c import is_identifier
from tinyai.errors import FormatError
from tinyai.safe_text import safe

SUFFIX = "_manifest.json"  # after the package's name
# Another one for other keys or meanings.
SCHEMA, SCHEMA_WITH_STATE = "tinyai.manifest/1", "tinyai.manifest/2"


def manifest_of(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The manifest of a package with these facts and files, the same for the same package. Of each
    file it has size and SHA-256, and of all the rest a checksum at its end."""
    listed = {name: facts_of_file(content) for name, content in sorted(files.items())}
    schema = SCHEMA_WITH_STATE if "state_bytes" in facts else SCHEMA
    facts = {"schema": schema, "generator": MARK, **facts, "files": listed}
    return f"{json.dumps({**facts, 'checksum': _checksum(facts)}, indent=1)}\n".encode()


def read_manifest(content: bytes, path: Path) -> dict[str, Any]:
    """The facts of a manifest, and ``files``. ``path`` is the package's, for messages. Raises
    ``FormatError`` for one that was cut off, altered or written by another version."""
    try:
        facts = json.loads(content)
        if facts["schema"] != (SCHEMA_WITH_STATE if "state_bytes" in facts else SCHEMA):
            raise other_version(path, str(facts["schema"]))
        if facts.pop("checksum") != _checksum(facts):
            raise ValueError("it was altered: its checksum is another one")
        if not is_identifier(facts["name"]):
            raise ValueError(f"name {facts['name']!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise no_package(path, f"{SUFFIX[1:]}: {type(error).__name__}: {error}") from None
    return dict(facts)


def facts_of_file(content: bytes) -> dict[str, Any]:
    """Size and SHA-256 of a file, as a manifest has them."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _checksum(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def other_version(path: Path, found: str) -> FormatError:
    """The error for a package of another version of tinyai."""
    return FormatError(
        "C package of another version",
        found=f"{safe(str(path))}: {safe(found, 80)}",
        allowed=SCHEMA,
        hint="compile the model again, or use that version of tinyai",
    )


def no_package(path: Path, found: str) -> FormatError:
    """The error for what is no C package, or one whose files do not belong together."""
    return FormatError(
        "C package",
        found=f"{safe(str(path))}: {safe(found, 300)}",
        allowed="a folder or .tar as tinyai compile wrote it",
        hint="tinyai compile MODEL -o net",
    )
