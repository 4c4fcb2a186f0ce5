"""What is told of notebooks whose outputs changed, or hold what they may not."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.support.notebooks import PICTURE, PICTURE_BYTES, blemishes, differences, executed, main


def printed(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def drawn(content: bytes = b"png") -> NotebookNode:
    picture = base64.b64encode(content).decode()
    return new_output("display_data", data={PICTURE: picture})


def showing(*outputs: NotebookNode, tags: tuple[str, ...] = ()) -> NotebookNode:
    metadata = {"tags": list(tags)} if tags else {}
    return new_notebook(cells=[new_code_cell("run()", outputs=list(outputs), metadata=metadata)])


def test_another_text_is_a_difference_and_is_shown() -> None:
    (told,) = differences(showing(printed("of 20 all\n")), showing(printed("of 20 none\n")))
    assert "code cell 1 shows another text" in told
    assert "-of 20 all\n+of 20 none" in told


def test_another_value_is_a_difference() -> None:
    old, new = (new_output("execute_result", data={"text/plain": text}) for text in "12")
    assert list(differences(showing(old), showing(old))) == []
    assert len(list(differences(showing(old), showing(new)))) == 1


def test_of_what_varies_only_the_kinds_are_compared() -> None:
    old, new = (showing(printed(text), tags=("varies",)) for text in ("5 µs", "6 µs"))
    assert list(differences(old, new)) == []
    (told,) = differences(old, showing(printed("5 µs"), drawn(), tags=("varies",)))
    assert told == "code cell 1 shows ['stdout', 'image/png'], and ['stdout'] is committed"


def test_a_picture_may_change_and_may_not_go() -> None:
    assert list(differences(showing(drawn(b"one")), showing(drawn(b"two")))) == []
    assert len(list(differences(showing(drawn()), showing()))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "in /tmp/a/net.so",
        "'/home/me/x'",
        "me@here",
        "<object at 0x7f00aa00bb00>",
        "FutureWarning: no",
    ],
)
def test_what_tells_of_a_machine_or_warns_is_a_blemish(line: str) -> None:
    (told,) = blemishes(showing(printed(f"fine\n{line}\n")))
    assert told == f"code cell 1 shows {line!r}"


def test_the_error_output_and_large_pictures_are_blemishes() -> None:
    assert list(blemishes(showing(printed("build/net.so, 7 / 2, @main, 0x7f\n"), drawn()))) == []
    assert len(list(blemishes(showing(printed("done", "stderr"))))) == 1
    assert len(list(blemishes(showing(drawn(bytes(PICTURE_BYTES + 1)))))) == 1


# Jupyter's kernel manager and Python's event loop warn of each other's manners.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_outputs_are_written_anew_without_counts_and_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "n.ipynb"
    cell = new_code_cell("import tinyai\nprint('no')\nprint(1)\n2", execution_count=7)
    nbformat.write(new_notebook(cells=[cell]), path)

    assert main([path]) == 0

    first = path.read_bytes()
    notebook = nbformat.read(path, as_version=4)
    (cell,) = notebook.cells
    assert [output.get("text") for output in cell.outputs] == ["no\n1\n", None]
    assert cell.outputs[1].data == {"text/plain": "2"}
    assert (cell.execution_count, cell.outputs[1].execution_count) == (None, None)
    assert (cell.metadata, notebook.metadata) == ({}, {})
    assert "n.ipynb: " in capsys.readouterr().out
    nbformat.write(executed(path), path)
    assert path.read_bytes() == first


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_writing_a_notebook_with_a_blemish_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "n.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("print('/tmp/x')")]), path)
    assert main([path]) == 1
    assert "n.ipynb: code cell 1 shows '/tmp/x'" in capsys.readouterr().out
