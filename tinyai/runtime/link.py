"""From a network to a library that ``tinyai.runtime.library`` loads."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyai._version import __version__
from tinyai.backend import Compiled, compile_graph
from tinyai.codegen.c_source import CSource
from tinyai.files import check_place
from tinyai.network import Network
from tinyai.runtime.library import CONSTANT, FORMAT, FORMAT_WITH_STATE
from tinyai.runtime.toolchain import Toolchain
from tinyai.runtime.watch import HOOK_FLAG
from tinyai.stages import stage
from tinyai.target import Target, this_architecture


def write_library(
    network: Network,
    file: str | os.PathLike[str],
    target: Target,
    toolchain: Toolchain | None = None,
    *,
    here: bool = False,
) -> Compiled:
    """Compile ``network`` to a library at ``file``, whole or not at all. ``here``: for this
    machine's CPU alone. Returns what its C was made of.

    Raises ``LimitError``, ``UnsupportedError`` or ``OptionError`` as ``compile_graph``,
    ``ToolchainError`` where the C compiler fails, ``OSError`` where the file cannot be written.
    """
    path = Path(file)
    toolchain = toolchain_for(target, toolchain)
    toolchain.command()  # raises, before the work begins, where there is none
    check_place(path)
    with stage("graph to C"):
        compiled = compile_graph(
            network.graph,
            target,
            abi="plain",
            hooked=True,
            kernels=network.kernels,
            states=[state.value for state in network.states],
        )
    with tempfile.TemporaryDirectory(prefix="tinyai-") as folder, stage("C compiler"):
        code, facts = Path(folder) / "network.c", Path(folder) / "facts.c"
        code.write_text(compiled.source.text)
        facts.write_text(facts_in_c(network, compiled.source, target))
        toolchain.shared_library(path, [code, facts], HOOK_FLAG, here=here)
    return compiled


def toolchain_for(target: Target, given: Toolchain | None) -> Toolchain:
    """The compiler that is given, else this machine's, or the cross compiler for the target's.
    Raises ``OptionError`` for what is no toolchain, ``ToolchainError`` where there is none."""
    foreign = target.architecture != this_architecture()
    return Toolchain.of(given, f"{target.architecture}-linux-gnu" if foreign else "")


def facts_in_c(network: Network, source: CSource, target: Target) -> str:
    """What a library says of itself, as a C file with one constant."""
    facts = {
        "tinyai": __version__,
        "name": network.name,
        "entry": source.symbol,
        "target": str(target),
        "arena_bytes": source.arena_bytes,
        "weight_bytes": source.weight_bytes,
        "layers": source.layers_digest,
        "inputs": [port.spec() for port in network.inputs],
        "outputs": [port.spec() for port in network.outputs],
    }
    if network.states:
        facts["state_bytes"] = source.state_bytes
    return constant_in_c(facts)


def constant_in_c(facts: Mapping[str, Any]) -> str:
    """The constant that a library says facts of itself by."""
    written = FORMAT_WITH_STATE if "state_bytes" in facts else FORMAT
    text = json.dumps({"format": written, **facts})
    parts = (text[start : start + 80] for start in range(0, len(text), 80))
    declared = f"extern const char {CONSTANT}[];\nconst char {CONSTANT}[] ="
    # ASCII inside of string literals, in which no trigraph is.
    escaped = ("".join(f"\\{c}" if c in '"\\?' else c for c in part) for part in parts)
    lines = "\n".join(f'    "{part}"' for part in escaped)
    return (
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n{declared}\n{lines};\n'
        "#ifdef __cplusplus\n}\n#endif\n"
    )
