"""A child process that takes mutated model files through the product, one after the other.

Reads a line of JSON for each case: the file, whether its names hold the marker, whether to compare.
Writes a line of JSON for each stage and one for the outcome. The parent (``test_mutations.py``)
makes the files, and watches the clock and the exit code.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import resource
import subprocess
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ADDRESS_SPACE = 6 * 2**30  # bytes; a worker with TVM takes about 1 GB
FILE_SIZE = 64 * 2**20
COMPILE = ("gcc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events, and which of their arguments are the paths that change.
CHANGES = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.chmod"), (0, 1)),
    "os.rename": (0, 2),
    "os.link": (1, 2),
    "os.symlink": (1, 2),
}


class Defect(Exception):
    """What must not happen: kind and details."""

    def __init__(self, kind: str, details: str) -> None:
        super().__init__(f"{kind}: {details}")
        self.kind, self.details = kind, details


class Guard:
    """Notes what is opened for writing, made, renamed or removed outside of a folder."""

    def __init__(self) -> None:
        self.folders: tuple[str, ...] = ()
        self.found: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folders:
            return
        if event == "open":
            path, _, flags = arguments
            changed = [path] if isinstance(flags, int) and flags & WRITES else []
        elif event in CHANGES and arguments[-1] == -1:  # else within a folder that is open
            first, last = CHANGES[event]
            changed = list(arguments[first:last])
        else:
            return
        for path in changed:
            if isinstance(path, str | bytes) and not self._inside(os.path.realpath(path)):
                self.found.append(f"{event} {os.fsdecode(path)!r}")

    def _inside(self, path: str | bytes) -> bool:
        text = os.fsdecode(path)
        return text == os.devnull or text.startswith(self.folders)


def main() -> None:
    # TVM and its children write to the standard streams: the protocol keeps a copy of its own.
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from tinyai.frontends.relay import composites as door

    # Compiling the patterns is most of a partition's time, and the same each time.
    table = door.pattern_table()
    door.pattern_table = lambda *_: table  # type: ignore[assignment]
    import tinyai

    tinyai.register()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guard = Guard()
    report(say, stage="ready")
    for line in sys.stdin:
        asked = json.loads(line)
        file = Path(asked["file"])
        out = file.parent / "out"
        out.mkdir()
        os.chdir(file.parent)
        guard.folders = tuple(f"{os.path.realpath(f)}{os.sep}" for f in (out, os.environ["TMPDIR"]))
        try:
            outcome, details = run(file.name, out, asked, functools.partial(report, say))
        except Defect as defect:
            outcome, details = f"DEFECT {defect.kind}", defect.details
        except BaseException:
            outcome, details = "DEFECT exception", traceback.format_exc()[-3000:]
        guard.folders = ()
        if guard.found:
            outcome, details = "DEFECT write", ", ".join(guard.found)
            guard.found.clear()
        report(say, outcome=outcome, details=details)


def report(say: Any, **what: str) -> None:
    say.write(json.dumps(what) + "\n")


def run(file: str, out: Path, asked: Any, tell: Callable[..., None]) -> tuple[str, str]:
    """Outcome and details of a case. Raises ``Defect``."""
    from tests.support import mutations
    from tinyai.errors import TinyAIError
    from tinyai.frontends.relay import compile_region, partition_for_tinyai, regions
    from tinyai.frontends.relay.load import load_model
    from tinyai.frontends.relay.report import report_of

    tell(stage="load")
    try:
        mod, params = load_model(file)
    except TinyAIError as error:
        check_message(error)
        by_us = error.what == "model file"
        return "refused by a check" if by_us else "refused by the importer", str(error)
    tell(stage="partition")
    try:
        partitioned = partition_for_tinyai(mod, params)
    except TinyAIError as error:
        check_message(error)
        return "refused by the partition", str(error)
    tell(stage="compile")
    texts = [compile_region(region).get_source() for region in regions(partitioned).values()]
    shown = 0
    files = []
    for number, text in enumerate(texts):
        if not text.isascii():
            raise Defect("name in C", "not ASCII")
        if mutations.MARKER in mutations.text_without_comments(text):
            raise Defect("name in C", "the marker is outside of comments")
        shown += mutations.MARKER in text
        files.append(out / f"{number}.c")
        files[-1].write_text(text)
    tell(stage="gcc")
    if files:
        done = subprocess.run([*COMPILE, *files], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Defect("C", done.stderr[:2000])
    if asked["told"]:
        check_text(str(report_of(partitioned)))
    if not files:
        return "nothing for tinyai", ""
    told = " with names" if shown else ""
    if not asked["compare"]:
        return f"C compiles{told}", ""
    tell(stage="compare")
    return f"{compared(mod, params)}{told}", ""


def check_message(error: Exception) -> None:
    text = str(error)
    parts = ("\n  found:   ", "\n  allowed: ", "\n  try:     ")
    if any(part not in text for part in parts) or len(text.splitlines()) != 4:
        raise Defect("message", f"not what, found, allowed, try: {text}")
    check_text(text)


def check_text(text: str) -> None:
    strange = {c for c in text if unicodedata.category(c)[0] == "C"} - {"\n"}
    if strange or max(map(len, text.splitlines())) > 500:
        raise Defect("message", f"{strange} in {text[:1000]!r}")


def compared(mod: Any, params: Any) -> str:
    import numpy as np
    import tvm
    from tvm import relay

    import tinyai
    from tests.support.networks import _random
    from tests.support.oracle import REQUANTIZE, runner

    rng = np.random.default_rng(3)
    free = [p for p in mod["main"].params if p.name_hint not in params]
    inputs = {p.name_hint: _random(rng, p, 1.0) for p in free}
    with relay.qnn.op.qnn.requantize_config(**REQUANTIZE):
        try:
            with tvm.transform.PassContext(opt_level=3):
                expected = runner(relay.build(mod, target="llvm", params=params))(inputs)
        except Exception as error:  # what TVM cannot compile has no right result
            return f"no oracle ({type(error).__name__})"
        factory = tinyai.build(mod, params)
        found = runner(factory)(inputs)
    for a, b in zip(expected, found, strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_array_max_ulp(b, a, maxulp=2)  # the contract for floats
        elif not np.array_equal(a, b):
            raise Defect("result", f"{(a != b).sum()} of {a.size} numbers differ")
    return "equal to TVM"


if __name__ == "__main__":
    main()
