"""The manifest of a C package: JSON beside its header that says what the package is, written with
the package and read where it is compiled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyai.c_head import MARK
from tinyai.codegen.c import is_identifier
from tinyai.errors import FormatError
from tinyai.network import Port
from tinyai.report import safe
from tinyai.target import Target

SUFFIX = "_manifest.json"  # after the package's name
# Another one for other keys or meanings.
SCHEMA = "tinyai.manifest/1"


@dataclass(frozen=True)
class Manifest:
    """What a C package is. ``name`` begins its files and functions, ``version`` is tinyai's,
    ``hash`` the header's, ``layers`` ``CSource.layers_digest``. ``files`` are size and SHA-256 of
    every other file, by name. Where ``ports_in_arena`` holds, ``NAME_run`` takes no pointers."""

    name: str
    version: str
    hash: str
    target: Target
    portable: bool
    ports_in_arena: bool
    arena_bytes: int
    weight_bytes: int
    layers: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    files: Mapping[str, Mapping[str, Any]]

    def has(self, file: str, content: bytes) -> bool:
        """Whether a file of the package is as it was written."""
        return self.files.get(file) == facts_of_file(content)

    def to_bytes(self) -> bytes:
        """The file, the same for the same package, with a checksum of the rest at its end."""
        facts: dict[str, Any] = {"schema": SCHEMA, "generator": MARK, **vars(self)}
        facts |= {"target": str(self.target), "entry": f"{self.name}_run"}
        for kind in ("inputs", "outputs"):
            facts[kind] = [port.to_dict() for port in facts[kind]]
        facts["files"] = dict(self.files)
        text = json.dumps({**facts, "checksum": _checksum(facts)}, indent=1)
        return f"{text}\n".encode()

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> Manifest:
        """What ``to_bytes`` wrote. ``path`` is the package's, for messages. Raises ``FormatError``
        for what was cut off, altered or written by another version."""
        try:
            facts = json.loads(content)
            schema = facts.pop("schema")
            if schema != SCHEMA:
                raise other_version(path, str(schema))
            if facts.pop("checksum") != _checksum({"schema": schema, **facts}):
                raise ValueError("it was altered: its checksum is another one")
            if not is_identifier(facts["name"]):
                raise ValueError(f"name {facts['name']!r}")
            del facts["generator"], facts["entry"]
            facts["target"] = Target.of(str(facts["target"]))
            for kind in ("inputs", "outputs"):
                facts[kind] = tuple(map(Port.from_dict, facts[kind]))
            return cls(**facts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise no_package(path, f"{SUFFIX[1:]}: {type(error).__name__}: {error}") from None


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
