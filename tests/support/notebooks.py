"""Notebooks run again, and what they show beside what is committed.

``python -m tests.support.notebooks FILE...`` writes their outputs anew, in place, and says what
each took; ``make notebooks`` does it for all. ``--python PYTHON`` in front of the files runs them
in another environment, which borrows Jupyter and matplotlib from this one.
"""

from __future__ import annotations

import base64
import os
import re
import resource
import sys
import sysconfig
from collections.abc import Iterator
from copy import deepcopy
from difflib import unified_diff
from io import BytesIO
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

from tests.support.paths import ROOT

TUTORIALS = ROOT / "tutorials"
SECONDS = 600  # for a cell that hangs; the machine may be busy
VARIES = "varies"  # the tag of a cell that shows times, versions, or what depends on the CPU
PICTURE = "image/png"
PICTURE_BYTES = 60_000
COLORS = 128  # of a picture, which has a third of the bytes then
# A kernel asks programs for colours and progress bars, which a page does not show.
PLAIN = "import os; os.environ.pop('FORCE_COLOR', None); os.environ.pop('CLICOLOR_FORCE', None)"
# A line that tells of one CPU.
OF_THIS_CPU = re.compile(r"\n  note: +ONNX Runtime as programs start it [^\n]*")
# What tells of one machine or of a fault: where its files lie, a user at a host, an address in
# memory, a warning.
LEAK = re.compile(r"(?<![\w.])/(?:home|root|tmp|usr|var|work)/|\w@\w|\b0x[0-9a-f]{8,}|(?i:warning)")


# Packages of this environment come last: numpy and all that frameworks bring are that one's own.
BORROWING = f"""import sys; sys.path.append({sysconfig.get_path("purelib")!r})
from ipykernel import kernelapp; kernelapp.launch_new_instance()"""


def executed(path: Path, python: str = sys.executable) -> NotebookNode:
    """The notebook of ``path`` with what its cells show here, without what changes at each run. Its
    kernel sees this checkout and the commands of the environment of ``python``, and starts where
    Jupyter would.

    Raises nbclient's ``CellExecutionError`` where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    metadata = deepcopy(notebook.metadata)
    folder = str(path.resolve().parent)
    environment = os.environ | {
        "COLUMNS": "120",
        "MATPLOTLIBRC": str(TUTORIALS),
        "NO_COLOR": "1",
        "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "TOPHUB_LOCATION": "NONE",
    }
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        startup_timeout=SECONDS,
        extra_arguments=[f"--IPKernelApp.exec_lines={PLAIN}"],
        resources={"metadata": {"path": folder}},
        coalesce_streams=True,
        record_timing=False,
    )
    manager = client.create_kernel_manager()
    argv = [python, "-c", BORROWING, "-f", "{connection_file}"]
    manager._kernel_spec = KernelSpec(argv=argv, language="python", env={})
    client.execute(env=environment)
    notebook.metadata = metadata
    for cell in code_cells(notebook):
        cell.execution_count = None
        outputs = cell.outputs
        if python != sys.executable:  # there frameworks warn of each other
            outputs = [output for output in outputs if output.get("name") != "stderr"]
        cell.outputs = [_lasting(output) for output in outputs]
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _lasting(output: NotebookNode) -> NotebookNode:
    """``output`` without counts and metadata; of a picture its bytes alone, of a value its text."""
    if output.output_type == "stream":
        return output
    if PICTURE in output.data:
        data = {PICTURE: _small(output.data[PICTURE])}
    else:
        data = {"text/plain": output.data["text/plain"]}
    return nbformat.v4.new_output(output.output_type, data=data)


def _small(picture: str) -> str:
    """The picture, a PNG in base64, in few colours; the same bytes for the same picture."""
    content = BytesIO()
    image = Image.open(BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(COLORS).save(content, "PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()


def differences(committed: NotebookNode, found: NotebookNode) -> Iterator[str]:
    """Where ``found`` shows another text than ``committed``, or something of another kind. Pictures
    only have to be there, and so have the outputs of cells that vary."""
    for number, (old, new) in enumerate(
        zip(code_cells(committed), code_cells(found), strict=True), start=1
    ):
        if _kinds(old) != _kinds(new):
            yield f"code cell {number} shows {_kinds(new)}, and {_kinds(old)} is committed"
        elif VARIES not in old.metadata.get("tags", ()) and texts(old) != texts(new):
            lines = ("\n".join(texts(cell)).splitlines() for cell in (old, new))
            change = "\n".join(unified_diff(*lines, "committed", "found", lineterm=""))
            yield f"code cell {number} shows another text:\n{change}"


def _kinds(cell: NotebookNode) -> list[str]:
    return [output.get("name") or next(iter(output.data)) for output in cell.outputs]


def texts(cell: NotebookNode) -> list[str]:
    """What a cell printed, and the values that it shows as text."""
    shown = [
        output.text if output.output_type == "stream" else output.data.get("text/plain")
        for output in cell.outputs
    ]
    return [OF_THIS_CPU.sub("", text) for text in shown if text is not None]


def pictures(notebook: NotebookNode) -> list[bytes]:
    return [
        base64.b64decode(output.data[PICTURE])
        for cell in code_cells(notebook)
        for output in cell.outputs
        if PICTURE in output.get("data", ())
    ]


def blemishes(notebook: NotebookNode) -> Iterator[str]:
    """What no output may hold: a machine's paths, an address, a warning, a large picture."""
    for number, cell in enumerate(code_cells(notebook), start=1):
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"code cell {number} writes to stderr: {texts(cell)}"
        for line in "\n".join(texts(cell)).splitlines():
            if LEAK.search(line):
                yield f"code cell {number} shows {line!r}"
    for number, picture in enumerate(pictures(notebook), start=1):
        if len(picture) > PICTURE_BYTES:
            yield f"picture {number} has {len(picture)} bytes, and {PICTURE_BYTES} are allowed"


def main(words: list[str]) -> int:
    """Writes the outputs of notebooks anew; 1 where one holds what it may not."""
    found, python = [], sys.executable
    if words[:1] == ["--python"]:
        python, words = words[1], words[2:]
    for path in map(Path, words):
        before = _cpu_seconds()
        notebook = executed(path, python)
        sizes = [len(picture) for picture in pictures(notebook)]
        print(
            f"{path.name}: {_cpu_seconds() - before:.0f} s of CPU time, {len(sizes)} pictures, the "
            f"largest of {max(sizes, default=0) / 1000:.0f} kB",
            flush=True,
        )
        nbformat.write(notebook, path)
        found += [f"{path.name}: {blemish}" for blemish in blemishes(notebook)]
    print("\n".join(found))
    return int(bool(found))


def _cpu_seconds() -> float:
    """What processes that this one started and that have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
