"""The signatures of a .tflite file: functions by name, each a subgraph."""

from __future__ import annotations

import struct
from typing import Any

import tflite

from tinyai.errors import OptionError
from tinyai.frontends.faults import Fault

_SUBGRAPHS = 8  # of the schema's Model, in its table of fields


def content_of(content: bytes, signature: str) -> bytes:
    """The file with the subgraph of a signature in the place of the first, which is the one that
    TFLite runs; "" is the only signature, or what there is without one.

    Raises ``OptionError`` for a name that the file does not have, and where it leaves a choice;
    ``Fault`` where it contradicts itself.
    """
    model = tflite.Model.GetRootAsModel(content, 0)
    subgraphs = _subgraphs(model, content)
    alone = len(subgraphs) < 2 and not any(subgraphs.values())
    if not (signature in subgraphs if signature else alone):
        raise OptionError(
            "signature of a .tflite file",
            found=repr(signature) if signature else "none that is named",
            allowed=", ".join(map(repr, subgraphs)) or "none: the file has no signatures",
            hint="--signature NAME, in Python signature=, with one of the file's",
        )
    number = subgraphs.get(signature, 0)
    if not number:
        return content
    first: int = model._tab.Vector(model._tab.Offset(_SUBGRAPHS))
    place = first + 4 * number
    # Each entry of the list says how far behind it its subgraph lies.
    (distance,) = struct.unpack_from("<I", content, place)
    return content[:first] + struct.pack("<I", distance + place - first) + content[first + 4 :]


def _subgraphs(model: Any, content: bytes) -> dict[str, int]:
    """The number of each signature's subgraph. Raises ``Fault``."""
    count, found = model.SignatureDefsLength(), dict[str, int]()
    if 4 * count > len(content):
        raise Fault(f"a list of {count} signatures in {len(content)} bytes", "one that fits")
    for place in range(count):
        of = model.SignatureDefs(place)
        name, number = (of.SignatureKey() or b"").decode(errors="replace"), of.SubgraphIndex()
        if name in found:
            raise Fault(f"two signatures named {name!r}", "names that differ")
        if number >= model.SubgraphsLength():
            allowed = f"0 to {model.SubgraphsLength() - 1}"
            raise Fault(f"signature {name!r} of subgraph {number}", allowed)
        found[name] = number
    return found
